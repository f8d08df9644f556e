/* libnvidia-ml.so.1 without a GPU: the NVML calls of this project's tools, answered from a text file.
 *
 * FAKE_NVML_STATE names the file. It is read anew on every call, so a running process sees a change at once; it is
 * replaced by rename, so no call sees half of it. One key=value per line; [gpu] begins the next device; nvml.py
 * writes it. An unknown key makes every call fail with 999, because a typo must not look like a healthy GPU.
 *
 * Layouts and symbol names follow NVIDIA's nvml.h as nvidia-ml-py declares them (test_nvml.py checks each).
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       DRIVER_NOT_LOADED = 9, LOST = 15, VERSION_MISMATCH = 25, UNKNOWN = 999 };
enum { MAX_GPUS = 16, MAX_PROCESSES = 64 };

typedef unsigned int u32;
typedef unsigned long long u64;
typedef void *nvmlDevice_t; /* the index plus one: a null handle is a caller's mistake */

struct process { u32 pid; u64 memory; };
struct list { u32 n; struct process at[MAX_PROCESSES]; };

/* error, handle_error: what calls on the handle, and getting one, return instead of an answer */
#define NUMBERS(X) X(error) X(handle_error) X(memory_total) X(memory_used) X(memory_reserved) X(utilization) \
    X(memory_utilization) X(temperature) X(power_usage) X(power_limit) X(cc_major) X(cc_minor) X(pci_bus) \
    X(ecc_corrected) X(ecc_uncorrected) X(ecc_corrected_aggregate) X(ecc_uncorrected_aggregate) \
    X(clocks_event_reasons) X(persistence_mode) X(mig_mode)
#define DECLARE(field) u64 field;
struct gpu { char name[96], uuid[96], not_supported[256]; NUMBERS(DECLARE) struct list compute, graphics; };
struct state { char driver[80], nvml[80]; u64 init, cuda; u32 n; struct gpu gpus[MAX_GPUS]; };

enum kind { NUMBER, TEXT, PROCESS };
struct key { const char *name; enum kind kind; size_t at, size; };
#define AT(type, field, kind) { #field, kind, offsetof(struct type, field), sizeof(((struct type *)0)->field) }
#define GPU_NUMBER(field) AT(gpu, field, NUMBER),
static const struct key GLOBAL[] = {
    AT(state, driver, TEXT), AT(state, nvml, TEXT), AT(state, init, NUMBER), AT(state, cuda, NUMBER), { 0 } };
static const struct key PER_GPU[] = {
    AT(gpu, name, TEXT), AT(gpu, uuid, TEXT), AT(gpu, not_supported, TEXT), AT(gpu, compute, PROCESS),
    AT(gpu, graphics, PROCESS), NUMBERS(GPU_NUMBER) { 0 } };

static int initialized; /* nvmlInit is counted, as in the real library */

static int set(const struct key *key, char *base, const char *name, const char *value) {
    for (; key->name && strcmp(key->name, name); key++) {}
    if (!key->name) return UNKNOWN;
    char *field = base + key->at;
    if (key->kind == NUMBER) *(u64 *)field = strtoull(value, NULL, 10);
    if (key->kind == TEXT) snprintf(field, key->size, "%s", value);
    if (key->kind == PROCESS) { /* one line per process: "pid bytes" */
        struct list *list = (struct list *)field;
        if (list->n == MAX_PROCESSES) return UNKNOWN;
        struct process *p = &list->at[list->n++];
        if (sscanf(value, "%u %llu", &p->pid, &p->memory) != 2) return UNKNOWN;
    }
    return OK;
}

static int load(struct state *s) {
    char line[512];
    const char *path = getenv("FAKE_NVML_STATE");
    FILE *in = path ? fopen(path, "re") : NULL;
    memset(s, 0, sizeof *s);
    if (!in) return DRIVER_NOT_LOADED;
    int rc = OK;
    while (rc == OK && fgets(line, sizeof line, in)) {
        line[strcspn(line, "\n")] = 0;
        char *value = strchr(line, '=');
        if (value) *value++ = 0;
        if (!strcmp(line, "[gpu]")) rc = s->n++ < MAX_GPUS ? OK : UNKNOWN;
        else if (!value) rc = UNKNOWN;
        else if (s->n) rc = set(PER_GPU, (char *)&s->gpus[s->n - 1], line, value);
        else rc = set(GLOBAL, (char *)s, line, value);
    }
    fclose(in);
    return rc;
}

static int system_state(struct state *s) { return initialized ? load(s) : UNINITIALIZED; }

static int find(nvmlDevice_t device, const char *field, struct gpu *g) {
    struct state s;
    int rc = system_state(&s);
    if (rc) return rc;
    if (!device) return INVALID;
    size_t index = (uintptr_t)device - 1;
    if (index >= s.n) return LOST; /* it was there when the handle was taken */
    *g = s.gpus[index];
    char word[64];
    snprintf(word, sizeof word, ",%s,", field); /* the list is ",this,that," */
    return g->error ? (int)g->error : strstr(g->not_supported, word) ? NOT_SUPPORTED : OK;
}

static int handle(const struct state *s, u32 index, nvmlDevice_t *device) {
    if (s->gpus[index].handle_error) return (int)s->gpus[index].handle_error;
    *device = (nvmlDevice_t)(uintptr_t)(index + 1);
    return OK;
}

static int text(char *to, u32 size, const char *from) {
    return (size_t)snprintf(to, size, "%s", from) < size ? OK : INSUFFICIENT_SIZE;
}

#define SYSTEM struct state s; int rc = system_state(&s); if (rc) return rc
#define GPU(field) struct gpu g; int rc = find(device, field, &g); if (rc) return rc
#define NUMBER_OF(function, type, field) \
    int function(nvmlDevice_t device, type *out) { GPU(#field); *out = (type)g.field; return OK; }

int nvmlInitWithFlags(u32 flags) {
    struct state s;
    int rc = load(&s);
    (void)flags;
    if (rc || s.init) return rc ? rc : (int)s.init;
    initialized++;
    return OK;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlInit(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return initialized ? (initialized--, OK) : UNINITIALIZED; }

const char *nvmlErrorString(int code) {
    return code == OK ? "Success" : code == NOT_SUPPORTED ? "Not Supported" : code == LOST ? "GPU is lost"
         : code == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "Unknown Error";
}

int nvmlSystemGetDriverVersion(char *out, u32 size) { SYSTEM; return text(out, size, s.driver); }
int nvmlSystemGetNVMLVersion(char *out, u32 size) { SYSTEM; return text(out, size, s.nvml); }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { SYSTEM; *out = (int)s.cuda; return OK; }
int nvmlSystemGetCudaDriverVersion(int *out) { return nvmlSystemGetCudaDriverVersion_v2(out); }

int nvmlDeviceGetCount_v2(u32 *out) { SYSTEM; *out = s.n; return OK; }
int nvmlDeviceGetHandleByIndex_v2(u32 index, nvmlDevice_t *out) {
    SYSTEM;
    return index < s.n ? handle(&s, index, out) : INVALID;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out) {
    SYSTEM;
    for (u32 i = 0; i < s.n; i++) if (!strcmp(s.gpus[i].uuid, uuid)) return handle(&s, i, out);
    return NOT_FOUND;
}

int nvmlDeviceGetIndex(nvmlDevice_t device, u32 *out) { GPU("index"); *out = (u32)((uintptr_t)device - 1); return OK; }
int nvmlDeviceGetName(nvmlDevice_t device, char *out, u32 size) { GPU("name"); return text(out, size, g.name); }
int nvmlDeviceGetUUID(nvmlDevice_t device, char *out, u32 size) { GPU("uuid"); return text(out, size, g.uuid); }
NUMBER_OF(nvmlDeviceGetPowerUsage, u32, power_usage)
NUMBER_OF(nvmlDeviceGetEnforcedPowerLimit, u32, power_limit)
NUMBER_OF(nvmlDeviceGetCurrentClocksEventReasons, u64, clocks_event_reasons)
NUMBER_OF(nvmlDeviceGetCurrentClocksThrottleReasons, u64, clocks_event_reasons)
NUMBER_OF(nvmlDeviceGetPersistenceMode, u32, persistence_mode)

struct memory { u64 total, free, used; };
struct memory_v2 { u32 version; u64 total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct memory *out) { /* here the driver's share counts as used */
    GPU("memory");
    u64 used = g.memory_used + g.memory_reserved;
    *out = (struct memory){ g.memory_total, g.memory_total - used, used };
    return OK;
}
int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct memory_v2 *out) {
    GPU("memory");
    if (out->version != (sizeof *out | 2u << 24)) return VERSION_MISMATCH;
    out->total = g.memory_total, out->reserved = g.memory_reserved, out->used = g.memory_used;
    out->free = g.memory_total - g.memory_used - g.memory_reserved;
    return OK;
}

struct utilization { u32 gpu, memory; };
int nvmlDeviceGetUtilizationRates(nvmlDevice_t device, struct utilization *out) {
    GPU("utilization");
    *out = (struct utilization){ (u32)g.utilization, (u32)g.memory_utilization };
    return OK;
}

struct temperature { u32 version, sensor; int celsius; };
int nvmlDeviceGetTemperature(nvmlDevice_t device, u32 sensor, u32 *out) {
    GPU("temperature");
    *out = (u32)g.temperature;
    return sensor ? INVALID : OK;
}
int nvmlDeviceGetTemperatureV(nvmlDevice_t device, struct temperature *out) {
    u32 celsius = 0;
    if (out->version != (sizeof *out | 1u << 24)) return VERSION_MISMATCH;
    int rc = nvmlDeviceGetTemperature(device, out->sensor, &celsius);
    out->celsius = (int)celsius;
    return rc;
}

int nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    GPU("compute_capability");
    *major = (int)g.cc_major, *minor = (int)g.cc_minor;
    return OK;
}
int nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, u32 uncorrected, u32 aggregate, u64 *out) {
    GPU("ecc");
    if (uncorrected > 1 || aggregate > 1) return INVALID;
    *out = aggregate ? (uncorrected ? g.ecc_uncorrected_aggregate : g.ecc_corrected_aggregate)
                     : (uncorrected ? g.ecc_uncorrected : g.ecc_corrected);
    return OK;
}
int nvmlDeviceGetMigMode(nvmlDevice_t device, u32 *current, u32 *pending) {
    GPU("mig_mode");
    *current = *pending = (u32)g.mig_mode;
    return OK;
}

struct pci { char legacy[16]; u32 domain, bus, device, pci_device, pci_subsystem; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, struct pci *out) {
    GPU("pci");
    *out = (struct pci){ .bus = (u32)g.pci_bus, .pci_device = 0x20B210DE };
    snprintf(out->legacy, sizeof out->legacy, "0000:%02X:00.0", out->bus);
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
    return OK;
}

/* NVML's protocol: *count comes in as room, goes out as need; too little room is INSUFFICIENT_SIZE. */
struct process_v1 { u32 pid; u64 memory; };
struct process_v2 { u32 pid; u64 memory; u32 gpu_instance, compute_instance; };
static int processes(nvmlDevice_t device, int graphics, int version, u32 *count, void *out) {
    GPU("processes");
    const struct list *list = graphics ? &g.graphics : &g.compute;
    u32 room = *count;
    *count = list->n;
    if (room < list->n) return INSUFFICIENT_SIZE;
    for (u32 i = 0; i < list->n; i++) {
        const struct process *p = &list->at[i];
        if (version == 1) ((struct process_v1 *)out)[i] = (struct process_v1){ p->pid, p->memory };
        else ((struct process_v2 *)out)[i] = (struct process_v2){ p->pid, p->memory, UINT32_MAX, UINT32_MAX };
    }
    return OK;
}
#define PROCESSES(function, graphics, version) \
    int function(nvmlDevice_t device, u32 *n, void *out) { return processes(device, graphics, version, n, out); }
PROCESSES(nvmlDeviceGetComputeRunningProcesses, 0, 1)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, 0, 2)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, 0, 2)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, 1, 1)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, 1, 2)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, 1, 2)
