/* The part of the NVML C interface that the simulated library answers.
 *
 * Layouts and numbers are those that nvidia-ml-py 13 passes through ctypes. Only what is exported by
 * nvml_sim.c is declared here.
 */
#ifndef NVML_ABI_H
#define NVML_ABI_H

#include <stdint.h>

typedef int nvmlReturn_t;
typedef struct gpu *nvmlDevice_t;

enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    FUNCTION_NOT_FOUND = 13,
    GPU_IS_LOST = 15,
    RESET_REQUIRED = 16,
    LIB_RM_VERSION_MISMATCH = 18,
    NO_DATA = 21,
    ARGUMENT_VERSION_MISMATCH = 25,
    NOT_READY = 27,
    UNKNOWN = 999,
};

enum { VALUE_DOUBLE = 0, VALUE_UINT = 1, VALUE_ULONG = 2, VALUE_ULL = 3, VALUE_SLL = 4, VALUE_SINT = 5 };

enum { CLOCK_GRAPHICS = 0, CLOCK_SM = 1, CLOCK_MEM = 2, CLOCK_VIDEO = 3 };

#define MEMORY_V2 0x02000028u
#define TEMPERATURE_V1 0x0100000Cu
#define MARGIN_TEMPERATURE_V1 0x01000008u
#define ADDRESSING_MODE_V1 0x01000008u
#define GPM_SUPPORT_V1 1u
#define GPM_METRICS_GET_V1 1u
#define NOT_AVAILABLE_ULL (~0ULL)

typedef struct { unsigned gpu, memory; } nvmlUtilization_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned long long total, free, used; } nvmlBAR1Memory_t;
typedef struct { unsigned version; unsigned sensorType; int temperature; } nvmlTemperature_t;
typedef struct { unsigned version; int marginTemperature; } nvmlMarginTemperature_t;
typedef struct { unsigned version, value; } nvmlDeviceAddressingMode_t;
typedef struct { unsigned long long referenceTime, violationTime; } nvmlViolationTime_t;

typedef union {
    double dVal;
    unsigned uiVal;
    unsigned long ulVal;
    unsigned long long ullVal;
    long long sllVal;
    int siVal;
} nvmlValue_t;

typedef struct { unsigned long long timeStamp; nvmlValue_t sampleValue; } nvmlSample_t;

typedef struct {
    uint32_t fieldId, scopeId;
    int64_t timestamp, latencyUsec;
    unsigned valueType;
    nvmlReturn_t nvmlReturn;
    nvmlValue_t value;
} nvmlFieldValue_t;

typedef struct { unsigned pid; unsigned long long usedGpuMemory; } nvmlProcessInfo_v1_t;
typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_v2_t;

typedef struct {
    unsigned pid;
    unsigned long long timeStamp;
    unsigned smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;

typedef struct {
    nvmlDevice_t device;
    unsigned long long eventType, eventData;
} nvmlEventData_v1_t;

typedef struct {
    nvmlDevice_t device;
    unsigned long long eventType, eventData;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlEventData_t;

typedef struct gpm_sample *nvmlGpmSample_t;
typedef struct { unsigned version, isSupportedDevice; } nvmlGpmSupport_t;
typedef struct {
    unsigned metricId;
    nvmlReturn_t nvmlReturn;
    double value;
    struct { char *shortName, *longName, *unit; } metricInfo;
} nvmlGpmMetric_t;
/* The length of `metrics` differs by version of the header; only `numMetrics` of them are used. */
typedef struct {
    unsigned version, numMetrics;
    nvmlGpmSample_t sample1, sample2;
    nvmlGpmMetric_t metrics[];
} nvmlGpmMetricsGet_t;

typedef struct {
    unsigned multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount;
    unsigned sharedJpegCount, sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
    unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

_Static_assert(sizeof(nvmlMemory_v2_t) == (MEMORY_V2 & 0xffffff), "memory v2 layout");
_Static_assert(sizeof(nvmlTemperature_t) == (TEMPERATURE_V1 & 0xffffff), "temperature layout");
_Static_assert(sizeof(nvmlMarginTemperature_t) == (MARGIN_TEMPERATURE_V1 & 0xffffff), "margin layout");
_Static_assert(sizeof(nvmlDeviceAddressingMode_t) == (ADDRESSING_MODE_V1 & 0xffffff), "addressing layout");
_Static_assert(sizeof(nvmlFieldValue_t) == 40, "field value layout");
_Static_assert(sizeof(nvmlProcessInfo_v2_t) == 24, "process info layout");
_Static_assert(sizeof(nvmlGpmMetric_t) == 40, "GPM metric layout");
_Static_assert(sizeof(nvmlGpmMetricsGet_t) == 24, "GPM metrics layout");
_Static_assert(sizeof(nvmlDeviceAttributes_t) == 40, "device attributes layout");

#endif
