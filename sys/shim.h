/* What bindgen reads: SPDK's public headers and what shim.c adds to them. */
#ifndef LAVIK_SHIM_H
#define LAVIK_SHIM_H

#include "spdk/stdinc.h"
#include "spdk/env.h"
#include "spdk/log.h"
#include "spdk/nvme.h"
#include "spdk/version.h"

/* The arguments of the one start of the environment. */
struct lavik_environment {
	const char *name;
	const char *eal_args;
	int memory_mb;
	int core;
	const struct spdk_pci_addr *pci_allowed;
	size_t pci_allowed_count;
};

/* The part of a controller's health log that is shown. */
struct lavik_health {
	uint8_t critical_warning;
	uint8_t available_spare_percent;
	uint8_t used_percent;
	uint16_t temperature_kelvin;
	uint64_t media_errors;
	uint64_t unsafe_shutdowns;
};

typedef void (*lavik_log_fn)(int level, const char *text);

int lavik_environment_start(const struct lavik_environment *start);
void lavik_log_to(lavik_log_fn sink);
int lavik_thread_node(void);
void *lavik_alloc(size_t size, int node);

struct spdk_nvme_ctrlr *lavik_connect(const struct spdk_nvme_transport_id *trid,
				      uint32_t timeout_ms, uint32_t depth);
void lavik_set_timeout(struct spdk_nvme_ctrlr *ctrlr, uint64_t us, spdk_nvme_timeout_cb late,
		       void *arg);
struct spdk_nvme_qpair *lavik_queue_pair(struct spdk_nvme_ctrlr *ctrlr, uint32_t requests);
int lavik_get_health(struct spdk_nvme_ctrlr *ctrlr, void *page, spdk_nvme_cmd_cb done, void *arg);
void lavik_read_health(const void *page, struct lavik_health *health);
size_t lavik_health_page_size(void);
void lavik_stop_dma(struct spdk_nvme_ctrlr *ctrlr);
bool lavik_has_write_cache(struct spdk_nvme_ctrlr *ctrlr);
bool lavik_is_write_protected(struct spdk_nvme_ns *ns);
/* 0: success; otherwise status code type << 8 | status code, with bit 15 set. */
uint16_t lavik_status(const struct spdk_nvme_cpl *cpl);

#endif
