/*
 * What Rust cannot call: inline functions, bit fields, variadic functions, structures whose
 * fields differ between the versions of SPDK that we build against. Nothing decides here.
 */

#include "shim.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>

#if SPDK_VERSION >= SPDK_VERSION_NUM(21, 1, 0)
#define PCI_ALLOWED pci_allowed
#else
#define PCI_ALLOWED pci_whitelist
#endif

static lavik_log_fn log_sink;

static void
log_line(int level, const char *file, const int line, const char *func, const char *format,
	 va_list args)
{
	char text[512];

	(void)file, (void)line, (void)func;
	vsnprintf(text, sizeof(text), format, args);
	log_sink(level, text);
}

void
lavik_log_to(lavik_log_fn sink)
{
	log_sink = sink;
	spdk_log_open(log_line);
	spdk_log_set_level(SPDK_LOG_NOTICE);
}

int
lavik_environment_start(const struct lavik_environment *start)
{
	struct spdk_env_opts opts;
	char mask[32];

	memset(&opts, 0, sizeof(opts));
#if SPDK_VERSION >= SPDK_VERSION_NUM(24, 9, 0)
	opts.opts_size = sizeof(opts);
#endif
	spdk_env_opts_init(&opts);
	snprintf(mask, sizeof(mask), "[%d]", start->core);
	opts.name = start->name;
	opts.core_mask = mask;
	opts.env_context = (void *)start->eal_args;
	if (start->memory_mb > 0) {
		opts.mem_size = start->memory_mb;
	}
	opts.unlink_hugepage = strstr(start->eal_args, "--no-huge") == NULL;
	opts.no_pci = start->pci_allowed_count == 0;
	opts.PCI_ALLOWED = (struct spdk_pci_addr *)start->pci_allowed;
	opts.num_pci_addr = start->pci_allowed_count;
	return spdk_env_init(&opts);
}

int
lavik_thread_node(void)
{
	unsigned int cpu, node;

	return getcpu(&cpu, &node) == 0 ? (int)node : -1;
}

void *
lavik_alloc(size_t size, int node)
{
	return spdk_zmalloc(size, 4096, NULL, node, SPDK_MALLOC_DMA | SPDK_MALLOC_SHARE);
}

struct spdk_nvme_ctrlr *
lavik_connect(const struct spdk_nvme_transport_id *trid, uint32_t timeout_ms, uint32_t depth)
{
	struct spdk_nvme_ctrlr_opts opts;

	spdk_nvme_ctrlr_get_default_ctrlr_opts(&opts, sizeof(opts));
	opts.admin_timeout_ms = timeout_ms;
	/* SPDK lowers it to what the controller allows. */
	opts.io_queue_size = depth;
	return spdk_nvme_connect(trid, &opts, sizeof(opts));
}

void
lavik_set_timeout(struct spdk_nvme_ctrlr *ctrlr, uint64_t us, spdk_nvme_timeout_cb late, void *arg)
{
#if SPDK_VERSION >= SPDK_VERSION_NUM(21, 7, 0)
	spdk_nvme_ctrlr_register_timeout_callback(ctrlr, us, us, late, arg);
#else
	spdk_nvme_ctrlr_register_timeout_callback(ctrlr, us, late, arg);
#endif
}

struct spdk_nvme_qpair *
lavik_queue_pair(struct spdk_nvme_ctrlr *ctrlr, uint32_t requests)
{
	struct spdk_nvme_io_qpair_opts opts;

	spdk_nvme_ctrlr_get_default_io_qpair_opts(ctrlr, &opts, sizeof(opts));
	opts.io_queue_requests = requests;
	opts.delay_cmd_submit = true;
	return spdk_nvme_ctrlr_alloc_io_qpair(ctrlr, &opts, sizeof(opts));
}

int
lavik_get_health(struct spdk_nvme_ctrlr *ctrlr, void *page, spdk_nvme_cmd_cb done, void *arg)
{
	return spdk_nvme_ctrlr_cmd_get_log_page(ctrlr, SPDK_NVME_LOG_HEALTH_INFORMATION,
						SPDK_NVME_GLOBAL_NS_TAG, page,
						lavik_health_page_size(), 0, done, arg);
}

void
lavik_read_health(const void *page, struct lavik_health *health)
{
	const struct spdk_nvme_health_information_page *from = page;

	health->critical_warning = from->critical_warning.raw;
	health->available_spare_percent = from->available_spare;
	health->used_percent = from->percentage_used;
	health->temperature_kelvin = from->temperature;
	health->media_errors = from->media_errors[0];
	health->unsafe_shutdowns = from->unsafe_shutdowns[0];
}

size_t
lavik_health_page_size(void)
{
	return sizeof(struct spdk_nvme_health_information_page);
}

void
lavik_stop_dma(struct spdk_nvme_ctrlr *ctrlr)
{
	struct spdk_pci_device *device = spdk_nvme_ctrlr_get_pci_device(ctrlr);
	uint16_t command;

	/* Bit 2 of the PCI command register: bus master. */
	if (device != NULL && spdk_pci_device_cfg_read16(device, &command, 4) == 0) {
		spdk_pci_device_cfg_write16(device, command & (uint16_t)~4, 4);
	}
}

bool
lavik_has_write_cache(struct spdk_nvme_ctrlr *ctrlr)
{
	return spdk_nvme_ctrlr_get_data(ctrlr)->vwc.present;
}

bool
lavik_is_write_protected(struct spdk_nvme_ns *ns)
{
	/* NSATTR, bit 0; older headers have no name for it. */
	return ((const uint8_t *)spdk_nvme_ns_get_data(ns))[99] & 1;
}

uint16_t
lavik_status(const struct spdk_nvme_cpl *cpl)
{
	return spdk_nvme_cpl_is_error(cpl) ? 0x8000 | cpl->status.sct << 8 | cpl->status.sc : 0;
}
