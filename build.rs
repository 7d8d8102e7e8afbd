//! Version stamp: hands the commit to the code as `LAVIK_REVISION`. Nothing else belongs here.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=LAVIK_REVISION");
    // A packager without the repository gives the revision in the environment.
    let given = std::env::var("LAVIK_REVISION").ok().filter(|revision| !revision.is_empty());
    // Everyday builds carry no commit, or each commit would compile everything anew.
    let release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let revision = match release {
        true => given.or_else(commit).unwrap_or_else(|| "unknown".into()),
        false => given.unwrap_or_else(|| "dev".into()),
    };
    println!("cargo::rustc-env=LAVIK_REVISION={revision}");
}

/// The commit in short form, with `+` behind it when files differ from it.
fn commit() -> Option<String> {
    for path in
        ["src", "Cargo.toml", "Cargo.lock", &git(&["rev-parse", "--git-path", "logs/HEAD"])?]
    {
        println!("cargo::rerun-if-changed={path}");
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let dirty = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if dirty.is_empty() { commit } else { commit + "+" })
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}
