// struct cudaDeviceProp, as CUDA Runtime API, "Data Structures", lists its members.
// CUDA 13 took members out and gave some of the reserved ones names; the order is the same.
#pragma once
#include <stddef.h>

#if CUDA_VERSION < 13000
#define ONLY_12(member) member
#else
#define ONLY_12(member)
#endif

typedef struct {
    char name[256], uuid[16], luid[8];
    unsigned luidDeviceNodeMask;
    size_t totalGlobalMem, sharedMemPerBlock;
    int regsPerBlock, warpSize;
    size_t memPitch;
    int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
    ONLY_12(int clockRate;)
    size_t totalConstMem;
    int major, minor;
    size_t textureAlignment, texturePitchAlignment;
    ONLY_12(int deviceOverlap;)
    int multiProcessorCount;
    ONLY_12(int kernelExecTimeoutEnabled;)
    int integrated, canMapHostMemory;
    ONLY_12(int computeMode;)
    int maxTexture1D, maxTexture1DMipmap;
    ONLY_12(int maxTexture1DLinear;)
    int maxTexture2D[2], maxTexture2DMipmap[2], maxTexture2DLinear[3], maxTexture2DGather[2];
    int maxTexture3D[3], maxTexture3DAlt[3], maxTextureCubemap, maxTexture1DLayered[2];
    int maxTexture2DLayered[3], maxTextureCubemapLayered[2], maxSurface1D, maxSurface2D[2];
    int maxSurface3D[3], maxSurface1DLayered[2], maxSurface2DLayered[3], maxSurfaceCubemap;
    int maxSurfaceCubemapLayered[2];
    size_t surfaceAlignment;
    int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver;
    int asyncEngineCount, unifiedAddressing;
    ONLY_12(int memoryClockRate;)
    int memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize, maxThreadsPerMultiProcessor;
    int streamPrioritiesSupported, globalL1CacheSupported, localL1CacheSupported;
    size_t sharedMemPerMultiprocessor;
    int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID;
    int hostNativeAtomicSupported;
    ONLY_12(int singleToDoublePrecisionPerfRatio;)
    int pageableMemoryAccess, concurrentManagedAccess, computePreemptionSupported;
    int canUseHostPointerForRegisteredMem, cooperativeLaunch;
    ONLY_12(int cooperativeMultiDeviceLaunch;)
    size_t sharedMemPerBlockOptin;
    int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost;
    int maxBlocksPerMultiProcessor, accessPolicyMaxWindowSize;
    size_t reservedSharedMemPerBlock;
    int hostRegisterSupported, sparseCudaArraySupported, hostRegisterReadOnlySupported;
    int timelineSemaphoreInteropSupported, memoryPoolsSupported, gpuDirectRDMASupported;
    unsigned gpuDirectRDMAFlushWritesOptions;
    int gpuDirectRDMAWritesOrdering;
    unsigned memoryPoolSupportedHandleTypes;
    int deferredMappingCudaArraySupported, ipcEventSupported, clusterLaunch;
    int unifiedFunctionPointers, reserved[63];
} cudaDeviceProp;
