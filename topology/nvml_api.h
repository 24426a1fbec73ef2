/* SPDX-License-Identifier: MIT */
/* As much of NVIDIA's management library as is asked, declared anew: it is opened at run time
 * and no header of it is needed to build. Names without the prefix "nvml"; layouts and numbers
 * are those of NVML's documented interface, which only ever adds.
 */
#ifndef TASUKI_TOPOLOGY_NVML_API_H
#define TASUKI_TOPOLOGY_NVML_API_H

enum {
    NVML_OK = 0, NVML_NOT_SUPPORTED = 3, NVML_NO_PERMISSION = 4, NVML_NOT_FOUND = 6,
    NVML_DRIVER_NOT_LOADED = 9, NVML_FUNCTION_NOT_FOUND = 13, NVML_GPU_IS_LOST = 15,
    NVML_UNKNOWN = 999
};

enum { NVML_TEXT = 96 };
enum { NVML_MAX_LINKS = 18 };
enum { NVML_CLOCK_SM = 1 };
enum { NVML_ERROR_CORRECTED = 0, NVML_ERROR_UNCORRECTED = 1, NVML_SINCE_LOADED = 0 };
enum { NVML_REMOTE_GPU = 0, NVML_REMOTE_CPU = 1, NVML_REMOTE_SWITCH = 2 };
enum { NVML_P2P_READ = 0 };
enum {
    NVML_P2P_OK = 0, NVML_P2P_CHIPSET = 1, NVML_P2P_GPU = 2, NVML_P2P_IOH = 3,
    NVML_P2P_DISABLED = 4, NVML_P2P_UNSUPPORTED = 5
};
/* Fields, megabytes (1e6) per second each way: of links 0 to 5, of 6 to 11, of all that are
 * active, and of the link in 'scope' (Hopper and later).
 */
enum {
    NVML_FIELD_SPEED_L0 = 84, NVML_FIELD_SPEED_COMMON = 90, NVML_FIELD_SPEED_L6 = 132,
    NVML_FIELD_SPEED = 164
};
enum { NVML_VALUE_DOUBLE, NVML_VALUE_UINT, NVML_VALUE_ULONG, NVML_VALUE_ULONGLONG,
       NVML_VALUE_LONGLONG };

typedef struct nvml_device *nvml_device;    /* opaque, as in the original */

struct nvml_pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct nvml_memory {
    unsigned long long total, unused, used;
};

struct nvml_field {
    unsigned field, scope;
    long long timestamp, latency;
    int type, result;
    union {
        double real;
        unsigned number;
        unsigned long big;
        unsigned long long large;
        long long integer;
    } value;
};

/* X(name, arguments): each returns one of the results above. */
#define NVML_CALLS(X)                                                                       \
    X(Init_v2, (void))                                                                      \
    X(Shutdown, (void))                                                                     \
    X(SystemGetDriverVersion, (char *, unsigned))                                           \
    X(DeviceGetCount_v2, (unsigned *))                                                      \
    X(DeviceGetHandleByIndex_v2, (unsigned, nvml_device *))                                 \
    X(DeviceGetName, (nvml_device, char *, unsigned))                                       \
    X(DeviceGetUUID, (nvml_device, char *, unsigned))                                       \
    X(DeviceGetPciInfo_v3, (nvml_device, struct nvml_pci *))                                \
    X(DeviceGetMemoryInfo, (nvml_device, struct nvml_memory *))                             \
    X(DeviceGetCudaComputeCapability, (nvml_device, int *, int *))                          \
    X(DeviceGetCurrPcieLinkGeneration, (nvml_device, unsigned *))                           \
    X(DeviceGetCurrPcieLinkWidth, (nvml_device, unsigned *))                                \
    X(DeviceGetMaxPcieLinkGeneration, (nvml_device, unsigned *))                            \
    X(DeviceGetMaxPcieLinkWidth, (nvml_device, unsigned *))                                 \
    X(DeviceGetNvLinkState, (nvml_device, unsigned, int *))                                 \
    X(DeviceGetNvLinkRemotePciInfo_v2, (nvml_device, unsigned, struct nvml_pci *))          \
    X(DeviceGetNvLinkRemoteDeviceType, (nvml_device, unsigned, int *))                      \
    X(DeviceGetFieldValues, (nvml_device, int, struct nvml_field *))                        \
    X(DeviceGetMigMode, (nvml_device, unsigned *, unsigned *))                              \
    X(DeviceGetMaxMigDeviceCount, (nvml_device, unsigned *))                                \
    X(DeviceGetMigDeviceHandleByIndex, (nvml_device, unsigned, nvml_device *))              \
    X(DeviceGetEccMode, (nvml_device, int *, int *))                                        \
    X(DeviceGetTotalEccErrors, (nvml_device, int, int, unsigned long long *))               \
    X(DeviceGetRemappedRows, (nvml_device, unsigned *, unsigned *, unsigned *, unsigned *)) \
    X(DeviceGetClockInfo, (nvml_device, int, unsigned *))                                   \
    X(DeviceGetMaxClockInfo, (nvml_device, int, unsigned *))                                \
    X(DeviceGetCurrentClocksThrottleReasons, (nvml_device, unsigned long long *))           \
    X(DeviceGetP2PStatus, (nvml_device, nvml_device, int, int *))

#endif
