/* nullcuda: a null CUDA device.
 *
 * LD_PRELOADed in front of a stock CUDA build of PyTorch, this library answers
 * the CUDA runtime API, the part of the driver API and the part of cuBLAS that
 * PyTorch and bitsandbytes call, as if one GPU were present.  Every kernel
 * launch and copy succeeds and does nothing; cudaMalloc hands out reserved,
 * inaccessible address space and counts it against a configurable capacity.
 * So PyTorch's own host code runs unchanged (operator dispatch, autograd,
 * autocast, the choice of attention kernel, kernel workspaces, the foreach and
 * fused optimizers, CUDACachingAllocator), and torch.cuda.memory_stats() is
 * computed by the real allocator, without a GPU.  Only host code that reads
 * values back from the device sees zeros.
 *
 * Environment:
 *   NULLCUDA_CC         compute capability, default "9.0"
 *   NULLCUDA_TOTAL_GIB  capacity of the device in GiB, default 16384
 *   NULLCUDA_CTX_MIB    bytes taken at start, as by a CUDA context; default 0
 *   NULLCUDA_LOG        1: print each cudaMalloc/cudaFree
 */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define API __attribute__((visibility("default")))

/* ---------------------------------------------------------------- settings */
static int cc_major = 9, cc_minor = 0, log_on = 0;
static size_t total_bytes, used_bytes, peak_bytes;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static int rt_version = 13000;

static void setup_once(void) {
  const char *s = getenv("NULLCUDA_CC");
  if (s) sscanf(s, "%d.%d", &cc_major, &cc_minor);
  s = getenv("NULLCUDA_TOTAL_GIB");
  double gib = s ? atof(s) : 16384.0;
  total_bytes = (size_t)(gib * 1073741824.0);
  s = getenv("NULLCUDA_CTX_MIB");
  used_bytes = (size_t)((s ? atof(s) : 0.0) * 1048576.0);
  peak_bytes = used_bytes;
  log_on = getenv("NULLCUDA_LOG") != NULL;
}
__attribute__((constructor)) static void setup(void) { setup_once(); }

/* ------------------------------------------------------------ device memory */
typedef struct { uintptr_t p; size_t n; } Seg;
static Seg *segs; static size_t nsegs, capsegs;

static void *dev_alloc(size_t n) {
  size_t r = (n + 4095) & ~(size_t)4095;
  if (!r) r = 4096;
  pthread_mutex_lock(&mu);
  if (used_bytes + r > total_bytes) { pthread_mutex_unlock(&mu); return NULL; }
  void *p = mmap(NULL, r, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) { pthread_mutex_unlock(&mu); return NULL; }
  if (nsegs == capsegs) { capsegs = capsegs ? 2 * capsegs : 256; segs = realloc(segs, capsegs * sizeof(Seg)); }
  segs[nsegs].p = (uintptr_t)p; segs[nsegs].n = r; nsegs++;
  used_bytes += r;
  if (used_bytes > peak_bytes) peak_bytes = used_bytes;
  pthread_mutex_unlock(&mu);
  if (log_on) fprintf(stderr, "[nullcuda] malloc %zu -> %p used %zu\n", n, p, used_bytes);
  return p;
}
static int dev_free(void *p) {
  pthread_mutex_lock(&mu);
  for (size_t i = 0; i < nsegs; i++) if (segs[i].p == (uintptr_t)p) {
    munmap(p, segs[i].n); used_bytes -= segs[i].n;
    segs[i] = segs[--nsegs];
    pthread_mutex_unlock(&mu);
    if (log_on) fprintf(stderr, "[nullcuda] free %p used %zu\n", p, used_bytes);
    return 1;
  }
  pthread_mutex_unlock(&mu);
  return 0;
}
static int is_dev(const void *p) {
  int r = 0;
  pthread_mutex_lock(&mu);
  for (size_t i = 0; i < nsegs; i++)
    if ((uintptr_t)p >= segs[i].p && (uintptr_t)p < segs[i].p + segs[i].n) { r = 1; break; }
  pthread_mutex_unlock(&mu);
  return r;
}
API size_t nullcuda_used(void) { return used_bytes; }
API size_t nullcuda_peak(void) { return peak_bytes; }
API void nullcuda_reset_peak(void) { peak_bytes = used_bytes; }

API cudaError_t cudaMalloc(void **p, size_t n) {
  void *q = dev_alloc(n);
  if (!q) { *p = NULL; return cudaErrorMemoryAllocation; }
  *p = q; return cudaSuccess;
}
API cudaError_t cudaFree(void *p) { if (p) dev_free(p); return cudaSuccess; }
API cudaError_t cudaMallocAsync(void **p, size_t n, cudaStream_t s) { return cudaMalloc(p, n); }
API cudaError_t cudaFreeAsync(void *p, cudaStream_t s) { return cudaFree(p); }
API cudaError_t cudaMallocManaged(void **p, size_t n, unsigned f) { *p = calloc(1, n ? n : 1); return *p ? cudaSuccess : cudaErrorMemoryAllocation; }
/* what is pinned, for DDP, which asks */
static struct { char *at; size_t n; } pinned[4096];
static int pinned_count;
static int is_pinned(const void *p) { for (int i = 0; i < pinned_count; i++) if ((char *)p >= pinned[i].at && (char *)p < pinned[i].at + pinned[i].n) return 1; return 0; }
API cudaError_t cudaHostAlloc(void **p, size_t n, unsigned f) { *p = NULL; if (posix_memalign(p, 4096, n ? n : 1)) return cudaErrorMemoryAllocation;
  if (pinned_count < 4096) { pinned[pinned_count].at = *p; pinned[pinned_count++].n = n ? n : 1; } return cudaSuccess; }
API cudaError_t cudaMallocHost(void **p, size_t n) { return cudaHostAlloc(p, n, 0); }
API cudaError_t cudaFreeHost(void *p) { free(p); return cudaSuccess; }
API cudaError_t cudaHostRegister(void *p, size_t n, unsigned f) { return cudaSuccess; }
API cudaError_t cudaHostUnregister(void *p) { return cudaSuccess; }
API cudaError_t cudaHostGetDevicePointer(void **d, void *h, unsigned f) { *d = h; return cudaSuccess; }
API cudaError_t cudaMemGetInfo(size_t *f, size_t *t) { *f = total_bytes - used_bytes; *t = total_bytes; return cudaSuccess; }

/* With NULLCUDA_REMEMBER=1 what was last copied to a device address (4 KiB at most) comes back when it is copied from there:
   DDP sends the order of its buckets through the device, and zeros would be an order too. */
#define KEPT 4096
static struct { void *at; size_t n; unsigned char *bytes; } kept[KEPT];
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static int remembers(void) {
  static int on = -1;
  if (on < 0) { const char *e = getenv("NULLCUDA_REMEMBER"); on = e && *e == '1'; }
  return on;
}
static size_t slot_of(void *p) { return ((uintptr_t)p >> 4) * 2654435761u % KEPT; }
static void keep(void *d, const void *s, size_t n) {
  if (!n || n > 4096) return;
  pthread_mutex_lock(&kept_lock);
  size_t i = slot_of(d);
  free(kept[i].bytes);
  kept[i].at = d; kept[i].n = n; kept[i].bytes = malloc(n);
  memcpy(kept[i].bytes, s, n);
  pthread_mutex_unlock(&kept_lock);
}
static int recall(void *d, const void *s, size_t n) {
  pthread_mutex_lock(&kept_lock);
  size_t i = slot_of((void *)s);
  int known = kept[i].at == s && kept[i].n >= n && kept[i].bytes;
  if (known) memcpy(d, kept[i].bytes, n);
  pthread_mutex_unlock(&kept_lock);
  return known;
}
static void copy_any(void *d, const void *s, size_t n, enum cudaMemcpyKind k) {
  int sd = is_dev(s), dd = is_dev(d);
  if (dd) { if (!sd && remembers()) keep(d, s, n); return; }
  if (sd) { if (!(remembers() && recall(d, s, n))) memset(d, 0, n); }   /* out of device memory: zeros */
  else memcpy(d, s, n);
}
API cudaError_t cudaMemcpy(void *d, const void *s, size_t n, enum cudaMemcpyKind k) { copy_any(d, s, n, k); return cudaSuccess; }
API cudaError_t cudaMemcpyAsync(void *d, const void *s, size_t n, enum cudaMemcpyKind k, cudaStream_t st) { copy_any(d, s, n, k); return cudaSuccess; }
API cudaError_t cudaMemcpyPeerAsync(void *d, int dd, const void *s, int sd, size_t n, cudaStream_t st) { return cudaSuccess; }
API cudaError_t cudaMemcpy2DAsync(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h, enum cudaMemcpyKind k, cudaStream_t st) {
  for (size_t i = 0; i < h; i++) copy_any((char *)d + i * dp, (const char *)s + i * sp, w, k);
  return cudaSuccess;
}
API cudaError_t cudaMemcpyToSymbol(const void *sym, const void *s, size_t n, size_t o, enum cudaMemcpyKind k) { return cudaSuccess; }
API cudaError_t cudaGetSymbolAddress(void **p, const void *sym) { *p = (void *)sym; return cudaSuccess; }
API cudaError_t cudaMemset(void *p, int v, size_t n) { if (!is_dev(p)) memset(p, v, n); return cudaSuccess; }
API cudaError_t cudaMemsetAsync(void *p, int v, size_t n, cudaStream_t s) { return cudaMemset(p, v, n); }
API cudaError_t cudaMemPrefetchAsync(const void *p, size_t n, struct cudaMemLocation l, unsigned f, cudaStream_t s) { return cudaSuccess; }
API cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
  memset(a, 0, sizeof *a);
  if (is_dev(p)) { a->type = cudaMemoryTypeDevice; a->device = 0; a->devicePointer = (void *)p; }
  else if (is_pinned(p)) { a->type = cudaMemoryTypeHost; a->device = 0; a->hostPointer = a->devicePointer = (void *)p; }
  else { a->type = cudaMemoryTypeUnregistered; a->device = -2; a->hostPointer = (void *)p; }
  return cudaSuccess;
}

/* ------------------------------------------------------------------- device */
static int sm_count(void) {
  if (cc_major == 9) return 132;
  if (cc_major == 8 && cc_minor == 0) return 108;
  if (cc_major == 8 && cc_minor == 6) return 82;
  if (cc_major == 8 && cc_minor == 9) return 128;
  if (cc_major == 7 && cc_minor == 5) return 40;
  if (cc_major == 10) return 148;
  return 80;
}
static int smem_optin(void) {
  if (cc_major >= 9 && cc_major < 12) return 232448;
  if (cc_major == 8 && cc_minor == 0) return 166912;
  if (cc_major == 8 || cc_major == 12) return 101376;
  if (cc_major == 7 && cc_minor == 5) return 65536;
  return 98304;
}
static int smem_sm(void) { return smem_optin() + 1024; }
static int threads_sm(void) { return (cc_major == 8 && cc_minor != 0) || cc_major == 12 ? 1536 : (cc_major == 7 && cc_minor == 5 ? 1024 : 2048); }
static int l2(void) { return cc_major == 9 ? 62914560 : cc_major == 8 && cc_minor == 0 ? 41943040 : 6291456; }

API cudaError_t cudaGetDeviceCount(int *n) { *n = 1; return cudaSuccess; }
API cudaError_t cudaGetDevice(int *d) { *d = 0; return cudaSuccess; }
API cudaError_t cudaSetDevice(int d) { return d == 0 ? cudaSuccess : cudaErrorInvalidDevice; }
API cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }
API cudaError_t cudaDeviceReset(void) { return cudaSuccess; }
API cudaError_t cudaDriverGetVersion(int *v) { *v = rt_version; return cudaSuccess; }
API cudaError_t cudaRuntimeGetVersion(int *v) { *v = rt_version; return cudaSuccess; }
API cudaError_t cudaDeviceCanAccessPeer(int *c, int a, int b) { *c = 0; return cudaSuccess; }
API cudaError_t cudaDeviceEnablePeerAccess(int p, unsigned f) { return cudaSuccess; }
API cudaError_t cudaDeviceGetPCIBusId(char *s, int n, int d) { snprintf(s, n, "0000:00:00.0"); return cudaSuccess; }
API cudaError_t cudaDeviceGetStreamPriorityRange(int *lo, int *hi) { if (lo) *lo = 0; if (hi) *hi = -5; return cudaSuccess; }
API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int d) {
  memset(p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "nullcuda sm_%d%d", cc_major, cc_minor);
  p->totalGlobalMem = total_bytes;
  p->sharedMemPerBlock = 49152; p->regsPerBlock = 65536; p->warpSize = 32;
  p->memPitch = 2147483647; p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = 1024; p->maxThreadsDim[1] = 1024; p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647; p->maxGridSize[1] = 65535; p->maxGridSize[2] = 65535;
  p->totalConstMem = 65536; p->major = cc_major; p->minor = cc_minor;
  p->textureAlignment = 512; p->texturePitchAlignment = 32;
  p->multiProcessorCount = sm_count(); p->canMapHostMemory = 1;
  p->surfaceAlignment = 512; p->concurrentKernels = 1; p->ECCEnabled = 1;
  p->asyncEngineCount = 3; p->unifiedAddressing = 1; p->memoryBusWidth = 6144;
  p->l2CacheSize = l2(); p->persistingL2CacheMaxSize = l2() / 2;
  p->maxThreadsPerMultiProcessor = threads_sm(); p->streamPrioritiesSupported = 1;
  p->globalL1CacheSupported = 1; p->localL1CacheSupported = 1;
  p->sharedMemPerMultiprocessor = smem_sm(); p->regsPerMultiprocessor = 65536;
  p->managedMemory = 1; p->hostNativeAtomicSupported = 0; p->concurrentManagedAccess = 1;
  p->computePreemptionSupported = 1; p->canUseHostPointerForRegisteredMem = 1;
  p->cooperativeLaunch = 1; p->sharedMemPerBlockOptin = smem_optin();
  p->maxBlocksPerMultiProcessor = 32; p->accessPolicyMaxWindowSize = 134213632;
  p->reservedSharedMemPerBlock = 1024; p->hostRegisterSupported = 1;
  p->memoryPoolsSupported = 1; p->clusterLaunch = cc_major >= 9; p->hostNumaId = -1;
  return cudaSuccess;
}
API cudaError_t cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr a, int d) {
  switch ((int)a) {
    case cudaDevAttrMaxThreadsPerBlock: *v = 1024; break;
    case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: *v = 1024; break;
    case cudaDevAttrMaxBlockDimZ: *v = 64; break;
    case cudaDevAttrMaxGridDimX: *v = 2147483647; break;
    case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: *v = 65535; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *v = 49152; break;
    case cudaDevAttrWarpSize: *v = 32; break;
    case cudaDevAttrMaxRegistersPerBlock: *v = 65536; break;
    case cudaDevAttrClockRate: *v = 1980000; break;
    case cudaDevAttrMultiProcessorCount: *v = sm_count(); break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *v = threads_sm(); break;
    case cudaDevAttrL2CacheSize: *v = l2(); break;
    case cudaDevAttrComputeCapabilityMajor: *v = cc_major; break;
    case cudaDevAttrComputeCapabilityMinor: *v = cc_minor; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *v = smem_sm(); break;
    case cudaDevAttrMaxRegistersPerMultiprocessor: *v = 65536; break;
    case cudaDevAttrCooperativeLaunch: *v = 1; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *v = smem_optin(); break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *v = 32; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *v = 1024; break;
    case cudaDevAttrMemoryPoolsSupported: *v = 1; break;
    case cudaDevAttrClusterLaunch: *v = cc_major >= 9; break;
    case cudaDevAttrManagedMemory: case cudaDevAttrConcurrentManagedAccess: *v = 1; break;
    case cudaDevAttrUnifiedAddressing: *v = 1; break;
    default: *v = 0;
  }
  return cudaSuccess;
}
API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *p, int d) { *p = (cudaMemPool_t)0x1000; return cudaSuccess; }
API cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t p, enum cudaMemPoolAttr a, void *v) { *(uint64_t *)v = 0; return cudaSuccess; }
API cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t p, enum cudaMemPoolAttr a, void *v) { return cudaSuccess; }
API cudaError_t cudaMemPoolSetAccess(cudaMemPool_t p, const struct cudaMemAccessDesc *d, size_t n) { return cudaSuccess; }
API cudaError_t cudaMemPoolTrimTo(cudaMemPool_t p, size_t n) { return cudaSuccess; }

/* ------------------------------------------------------------------- errors */
API const char *cudaGetErrorName(cudaError_t e) { return e == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : e ? "cudaErrorNull" : "cudaSuccess"; }
API const char *cudaGetErrorString(cudaError_t e) { return e == cudaErrorMemoryAllocation ? "out of memory" : e ? "nullcuda error" : "no error"; }
API cudaError_t cudaGetLastError(void) { return cudaSuccess; }
API cudaError_t cudaPeekAtLastError(void) { return cudaSuccess; }

/* --------------------------------------------------------- streams and events */
static uintptr_t next_handle = 0x10000;
static void *handle(void) { return (void *)__sync_add_and_fetch(&next_handle, 16); }
API cudaError_t cudaStreamCreate(cudaStream_t *s) { *s = handle(); return cudaSuccess; }
API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned f) { *s = handle(); return cudaSuccess; }
API cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned f, int p) { *s = handle(); return cudaSuccess; }
API cudaError_t cudaStreamDestroy(cudaStream_t s) { return cudaSuccess; }
API cudaError_t cudaStreamQuery(cudaStream_t s) { return cudaSuccess; }
API cudaError_t cudaStreamSynchronize(cudaStream_t s) { return cudaSuccess; }
API cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned f) { return cudaSuccess; }
API cudaError_t cudaStreamGetPriority(cudaStream_t s, int *p) { *p = 0; return cudaSuccess; }
API cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t f, void *u, unsigned fl) { f(s, cudaSuccess, u); return cudaSuccess; }
API cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void *u) { f(u); return cudaSuccess; }
API cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *st) { *st = cudaStreamCaptureStatusNone; return cudaSuccess; }
API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus *st, unsigned long long *id, cudaGraph_t *g, const cudaGraphNode_t **d, const cudaGraphEdgeData **e, size_t *n) {
  if (st) *st = cudaStreamCaptureStatusNone;
  if (id) *id = 0;
  if (n) *n = 0;
  return cudaSuccess;
}
API cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *m) { return cudaSuccess; }
API cudaError_t cudaEventCreate(cudaEvent_t *e) { *e = handle(); return cudaSuccess; }
API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned f) { *e = handle(); return cudaSuccess; }
API cudaError_t cudaEventDestroy(cudaEvent_t e) { return cudaSuccess; }
API cudaError_t cudaEventQuery(cudaEvent_t e) { return cudaSuccess; }
API cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) { return cudaSuccess; }
API cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned f) { return cudaSuccess; }
API cudaError_t cudaEventSynchronize(cudaEvent_t e) { return cudaSuccess; }
API cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) { *ms = 1.0f; return cudaSuccess; }
API cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
API cudaError_t cudaProfilerStop(void) { return cudaSuccess; }

/* ------------------------------------------------------------------ kernels */
typedef struct { dim3 g, b; size_t sh; cudaStream_t s; } Cfg;
static __thread Cfg cfg;
API void **__cudaRegisterFatBinary(void *f) { return (void **)calloc(1, 16); }
API void __cudaRegisterFatBinaryEnd(void **h) {}
API void __cudaUnregisterFatBinary(void **h) {}
/* Transformer Engine sizes scratch space by how many blocks of its norms' backward fit a multiprocessor, which their registers say
 * (cuobjdump -res-usage libtransformer_engine.so 2.11, sm_90, bfloat16): blocks of 128 threads, 65,536 registers. */
static struct { const void *f; int blocks; } known[4096];
static int n_known;
static int blocks_by_name(const char *name) {
  static const int of_layer_norm[][2] = {{768, 3}, {1024, 2}, {1536, 5}, {2048, 4}, {2304, 3}, {3072, 3}, {12288, 3}, {12800, 4}, {6144, 1}, {24576, 1},
                                         {30720, 1}, {32768, 1}, {40960, 1}, {49152, 1}, {65536, 1}};
  int layer_norm_tuned = strstr(name, "ln_bwd_tuned_kernel") != NULL;
  if (layer_norm_tuned || strstr(name, "ln_bwd_general_kernel")) {
    const char *at = strstr(name, "Lj");
    int width = at ? atoi(at + 2) : 0;
    if (!layer_norm_tuned) return width == 128 ? 10 : width == 512 || width == 2048 ? 4 : 2;
    for (unsigned i = 0; i < sizeof of_layer_norm / sizeof *of_layer_norm; i++) if (of_layer_norm[i][0] == width) return of_layer_norm[i][1];
    return 2;
  }
  int tuned = strstr(name, "rmsnorm_bwd_tuned_kernel") != NULL;
  if (!tuned && !strstr(name, "rmsnorm_bwd_general_kernel")) return 0;
  const char *at = strstr(name, "Lj");
  int width = at ? atoi(at + 2) : 0;
  if (tuned) return width == 512 ? 6 : width == 768 ? 4 : width == 2048 ? 5 : width == 8192 ? 2 : 3;
  return width == 512 ? 4 : width == 2048 ? 5 : width == 128 ? 12 : 3;
}
API void __cudaRegisterFunction(void **h, const char *hf, char *df, const char *dn, int tl, void *tid, void *bid, void *bd, void *gd, int *ws) {
  int blocks = blocks_by_name(dn ? dn : "");
  if (blocks && n_known < 4096) { known[n_known].f = hf; known[n_known++].blocks = blocks; }
}
API void __cudaRegisterVar(void **h, char *hv, char *da, const char *dn, int ext, size_t n, int c, int g) {}
API unsigned __cudaPushCallConfiguration(dim3 g, dim3 b, size_t sh, struct CUstream_st *s) { cfg.g = g; cfg.b = b; cfg.sh = sh; cfg.s = s; return 0; }
API cudaError_t __cudaPopCallConfiguration(dim3 *g, dim3 *b, size_t *sh, void *s) { *g = cfg.g; *b = cfg.b; *sh = cfg.sh; *(cudaStream_t *)s = cfg.s; return cudaSuccess; }
API cudaError_t __cudaGetKernel(cudaKernel_t *k, const void *f) { *k = (cudaKernel_t)f; return cudaSuccess; }
API cudaError_t __cudaLaunchKernel(cudaKernel_t k, dim3 g, dim3 b, void **a, size_t sh, cudaStream_t s) { return cudaSuccess; }
API cudaError_t cudaLaunchKernel(const void *f, dim3 g, dim3 b, void **a, size_t sh, cudaStream_t s) { return cudaSuccess; }
API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *f, void **a) { return cudaSuccess; }
API cudaError_t cudaLaunchCooperativeKernel(const void *f, dim3 g, dim3 b, void **a, size_t sh, cudaStream_t s) { return cudaSuccess; }
API cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *f) {
  memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = 1024; a->numRegs = 32;
  a->ptxVersion = a->binaryVersion = cc_major * 10 + cc_minor;
  a->maxDynamicSharedSizeBytes = smem_optin();
  return cudaSuccess;
}
API cudaError_t cudaFuncSetAttribute(const void *f, enum cudaFuncAttribute a, int v) { return cudaSuccess; }
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *f, int b, size_t s) {
  for (int i = 0; i < n_known; i++) if (known[i].f == f) { *n = known[i].blocks; return cudaSuccess; }
  *n = b > 0 ? (threads_sm() / b ? threads_sm() / b : 1) : 1; return cudaSuccess; }
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int b, size_t s, unsigned fl) { return cudaOccupancyMaxActiveBlocksPerMultiprocessor(n, f, b, s); }
API cudaError_t cudaOccupancyMaxActiveClusters(int *n, const void *f, const cudaLaunchConfig_t *c) { *n = 1; return cudaSuccess; }

/* ------------------------------------------------------------------- driver */
typedef int CUr;
#define OK0 { return 0; }
API CUr cuInit(unsigned f) OK0
API CUr cuDriverGetVersion(int *v) { *v = rt_version; return 0; }
API CUr cuDeviceGetCount(int *n) { *n = 1; return 0; }
API CUr cuDeviceGet(int *d, int o) { *d = 0; return 0; }
API CUr cuDeviceGetName(char *s, int n, int d) { snprintf(s, n, "nullcuda"); return 0; }
API CUr cuDeviceGetAttribute(int *v, int a, int d) { return cudaDeviceGetAttribute(v, a, d); }
API CUr cuDevicePrimaryCtxGetState(int d, unsigned *f, int *active) { if (f) *f = 0; if (active) *active = 1; return 0; }
API CUr cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)0x100; return 0; }
API CUr cuDevicePrimaryCtxRelease_v2(int d) OK0
API CUr cuCtxGetCurrent(void **c) { *c = (void *)0x100; return 0; }
API CUr cuCtxSetCurrent(void *c) OK0
API CUr cuCtxSetLimit(int l, size_t v) OK0
API CUr cuCtxGetLimit(size_t *v, int l) { *v = 0; return 0; }
API CUr cuCtxGetDevice(int *d) { *d = 0; return 0; }
API CUr cuCtxSynchronize(void) OK0
API CUr cuGetErrorString(int e, const char **s) { *s = "nullcuda"; return 0; }
API CUr cuGetErrorName(int e, const char **s) { *s = "nullcuda"; return 0; }
API CUr cuPointerGetAttribute(void *v, int a, uintptr_t p) { *(unsigned *)v = is_dev((void *)p) ? 2 : 1; return is_dev((void *)p) ? 0 : 1; }
API CUr cuTensorMapEncodeTiled(void *m) OK0
API CUr cuTensorMapEncodeIm2col(void *m) OK0
API CUr cuLaunchKernel(void *f) OK0
API CUr cuLaunchKernelEx(void *f) OK0
API CUr cuLaunchCooperativeKernel(void *f) OK0
API CUr cuFuncGetAttribute(int *v, int a, void *f) { *v = a == 0 ? 1024 : a == 4 ? 32 : 0; return 0; }   /* threads a block; registers */
API CUr cuFuncSetAttribute(void *f, int a, int v) OK0
API CUr cuFuncSetCacheConfig(void *f, int c) OK0
API CUr cuModuleLoad(void **m, const char *n) { *m = handle(); return 0; }
API CUr cuModuleLoadData(void **m, const void *n) { *m = handle(); return 0; }
API CUr cuModuleLoadDataEx(void **m, const void *n) { *m = handle(); return 0; }
API CUr cuModuleGetFunction(void **f, void *m, const char *n) { *f = handle(); return 0; }
API CUr cuModuleUnload(void *m) OK0
API CUr cuLinkCreate_v2(void) { return 1; }
API CUr cuLinkAddData_v2(void) { return 1; }
API CUr cuLinkComplete(void) { return 1; }
API CUr cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, void *f, int b, size_t s) { *n = 1; return 0; }
API CUr cuMemsetD32Async(void *p) OK0
API CUr cuMemsetD8Async(void *p) OK0
API CUr cuStreamWriteValue32(void *p) OK0
API CUr cuStreamWriteValue32_v2(void *p) OK0
/* virtual memory management, for expandable segments */
typedef struct { int type, handles; struct { int type, id; } loc; void *w; struct { unsigned char c, g; unsigned short u; unsigned char r[4]; } f; } AllocProp;
API CUr cuMemGetAllocationGranularity(size_t *g, const void *p, int o) { *g = 2097152; return 0; }
API CUr cuMemAddressReserve(uintptr_t *p, size_t n, size_t al, uintptr_t a, unsigned long long f) {
  void *q = mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (q == MAP_FAILED) return 2;
  pthread_mutex_lock(&mu);
  if (nsegs == capsegs) { capsegs = capsegs ? 2 * capsegs : 256; segs = realloc(segs, capsegs * sizeof(Seg)); }
  segs[nsegs].p = (uintptr_t)q; segs[nsegs].n = n; nsegs++;   /* address space only: not counted as used */
  pthread_mutex_unlock(&mu);
  *p = (uintptr_t)q; return 0;
}
API CUr cuMemAddressFree(uintptr_t p, size_t n) { if (dev_free((void *)p)) used_bytes += n; return 0; }
API CUr cuMemCreate(unsigned long long *h, size_t n, const void *p, unsigned long long f) {
  pthread_mutex_lock(&mu);
  if (used_bytes + n > total_bytes) { pthread_mutex_unlock(&mu); return 2; }
  used_bytes += n; if (used_bytes > peak_bytes) peak_bytes = used_bytes;
  pthread_mutex_unlock(&mu);
  size_t *r = malloc(sizeof(size_t)); *r = n; *h = (uintptr_t)r; return 0;
}
API CUr cuMemRelease(unsigned long long h) { size_t *r = (size_t *)(uintptr_t)h; pthread_mutex_lock(&mu); used_bytes -= *r; pthread_mutex_unlock(&mu); free(r); return 0; }
API CUr cuMemMap(uintptr_t p, size_t n, size_t o, unsigned long long h, unsigned long long f) OK0
API CUr cuMemUnmap(uintptr_t p, size_t n) OK0
API CUr cuMemSetAccess(uintptr_t p, size_t n, const void *d, size_t c) OK0
API CUr cuMemGetInfo_v2(size_t *f, size_t *t) { cudaMemGetInfo(f, t); return 0; }

static int unimplemented_driver(void) { return 801; } /* CUDA_ERROR_NOT_SUPPORTED */
API cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **fp, unsigned ver, unsigned long long flags, enum cudaDriverEntryPointQueryResult *st) {
  static void *self;
  if (!self) { Dl_info di; dladdr((void *)&setup_once, &di); self = dlopen(di.dli_fname, RTLD_NOW | RTLD_NOLOAD); }
  void *p = self ? dlsym(self, name) : NULL;
  *fp = p ? p : (void *)unimplemented_driver;
  if (st) *st = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
API cudaError_t cudaGetDriverEntryPoint(const char *name, void **fp, unsigned long long flags, enum cudaDriverEntryPointQueryResult *st) { return cudaGetDriverEntryPointByVersion(name, fp, 13000, flags, st); }

/* ------------------------------------------------------------------- cuBLAS */
static int mathmode;
API int cublasCreate_v2(void **h) { *h = handle(); return 0; }
API int cublasDestroy_v2(void *h) OK0
API int cublasSetStream_v2(void *h, void *s) OK0
API int cublasSetWorkspace_v2(void *h, void *w, size_t n) OK0
API int cublasSetMathMode(void *h, int m) { mathmode = m; return 0; }
API int cublasGetMathMode(void *h, int *m) { *m = mathmode; return 0; }
API int cublasSetPointerMode_v2(void *h, int m) OK0
API int cublasGetPointerMode_v2(void *h, int *m) { *m = 0; return 0; }
API size_t cublasLtGetVersion(void) { return 130100; }
API int cublasLtCreate(void **h) { *h = handle(); return 0; }
API int cublasLtMatmulDescCreate(void **d, int a, int b) { *d = handle(); return 0; }
API int cublasLtMatmulDescDestroy(void *d) OK0
API int cublasLtMatmulDescSetAttribute(void *d, int a, const void *b, size_t n) OK0
API int cublasLtMatrixLayoutCreate(void **d, int t, uint64_t r, uint64_t c, int64_t ld) { *d = handle(); return 0; }
API int cublasLtMatrixLayoutDestroy(void *d) OK0
API int cublasLtMatrixLayoutSetAttribute(void *d, int a, const void *b, size_t n) OK0
API int cublasLtMatmulPreferenceCreate(void **d) { *d = handle(); return 0; }
API int cublasLtMatmulPreferenceDestroy(void *d) OK0
API int cublasLtMatmulPreferenceSetAttribute(void *d, int a, const void *b, size_t n) OK0
typedef struct { uint64_t algo[8]; size_t ws; int state; float waves; int reserved[4]; } LtHeur;
API int cublasLtMatmulAlgoGetHeuristic(void *h, void *d, void *a, void *b, void *c, void *dd, void *pref, int want, LtHeur *res, int *got) {
  if (want > 0) { memset(&res[0], 0, sizeof(LtHeur)); *got = 1; } else *got = 0;
  return 0;
}
API int cublasLtMatmul(void *h) OK0
#define B0(n) API int n(void *h) OK0
B0(cublasCdotc_v2) B0(cublasCdotu_v2) B0(cublasCgelsBatched) B0(cublasCgemmStridedBatched) B0(cublasCgemm_v2) B0(cublasCgemv_v2)
B0(cublasCgeqrfBatched) B0(cublasCgetrfBatched) B0(cublasCgetrsBatched) B0(cublasCtrsmBatched) B0(cublasCtrsm_v2) B0(cublasDdot_v2)
B0(cublasDgelsBatched) B0(cublasDgemmStridedBatched) B0(cublasDgemm_v2) B0(cublasDgemv_v2) B0(cublasDgeqrfBatched) B0(cublasDgetrfBatched)
B0(cublasDgetrsBatched) B0(cublasDotEx) B0(cublasDtrsmBatched) B0(cublasDtrsm_v2) B0(cublasGemmEx) B0(cublasGemmStridedBatchedEx)
B0(cublasSdot_v2) B0(cublasSgelsBatched) B0(cublasSgemmEx) B0(cublasSgemmStridedBatched) B0(cublasSgemm_v2) B0(cublasSgemv_v2)
B0(cublasSgeqrfBatched) B0(cublasSgetrfBatched) B0(cublasSgetrsBatched) B0(cublasStrsmBatched) B0(cublasStrsm_v2) B0(cublasGemmBatchedEx)

/* -------------------------------------------------- cuDNN (for its attention) */
/* The graph API is answered with empty plans: cuDNN's own plan workspace counts as
 * 0 bytes here, the workspace that cudnn-frontend keeps for itself is real. */
API int cudnnCreate(void **h) { *h = handle(); return 0; }
API int cudnnDestroy(void *h) OK0
API int cudnnSetStream(void *h, void *s) OK0
API int cudnnGetStream(void *h, void **s) { *s = NULL; return 0; }
API int cudnnBackendCreateDescriptor(int t, void **d) { int *p = calloc(1, 64); p[0] = t; *d = p; return 0; }
API int cudnnBackendDestroyDescriptor(void *d) { free(d); return 0; }
API int cudnnBackendFinalize(void *d) OK0
API int cudnnBackendExecute(void *h, void *p, void *v) OK0
API int cudnnBackendSetAttribute(void *d, int name, int type, int64_t n, const void *a) OK0
API int cudnnBackendGetAttribute(void *d, int name, int type, int64_t want, int64_t *got, void *a) {
  if (getenv("NULLCUDA_CUDNN_LOG")) fprintf(stderr, "[nullcuda] cudnn get desc %d attr %d type %d want %ld\n", *(int *)d, name, type, (long)want);
  if (type == 11 /* NUMERICAL_NOTE */ || type == 19 /* BEHAVIOR_NOTE */ || name == 302 /* ENGINECFG_KNOB_CHOICES */) {
    if (got) *got = 0;
    return 0;
  }
  if (got) *got = 1;
  if (want > 0 && a) {
    if (type == 3 /* INT64 */) *(int64_t *)a = 0;
    else if (type == 23 /* INT32 */) *(int32_t *)a = 0;
    else if (type == 2 /* BOOLEAN */) *(char *)a = 0;
  }
  return 0;
}

/* ------------------------------------------------------------------ dlsym */
/* cudnn-frontend, as Transformer Engine has it inside, opens libcudart by name and asks that library for its functions: it is
 * given the ones above. */
API void *dlsym(void *library, const char *name) {
  static void *(*real)(void *, const char *);
  static void *self;
  if (!real) real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
  if (!real) real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  if (!strncmp(name, "cuda", 4)) {
    if (!self) { Dl_info di; dladdr((void *)&setup_once, &di); self = dlopen(di.dli_fname, RTLD_NOW | RTLD_NOLOAD); }
    void *own = self ? real(self, name) : NULL;
    if (own) return own;
  }
  return real(library, name);
}

/* ------------------------------------------------- cuSOLVER (for torch.linalg.svd) */
/* A handle of zeros: how large the workspace has to be the library says itself, from the matrix alone. */
API int cusolverDnCreate(void **h) { *h = calloc(1, 1 << 20); return 0; }
API int cusolverDnDestroy(void *h) { free(h); return 0; }
API int cusolverDnSetStream(void *h, void *s) OK0
API int cusolverDnSgesvdj(void *h) OK0
