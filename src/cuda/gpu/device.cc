// An NVIDIA GPU, through the CUDA runtime.
#include "cuda/device.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "quire/error.h"

namespace quire::cuda {
namespace {

constexpr int kLeastMajor = 8;
constexpr int kSharedWithoutAsking = 48 << 10;

std::string mib(size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw Error(ErrorKind::kResource, std::string("the GPU failed to ") + what + ": " + cudaGetErrorString(error));
}

// Kernels of clusters have not run on a GPU yet, and a mistake in their barriers would wait for ever. So nothing measures them
// unless the environment says so (docs/cuda.md).
bool wants_clusters() {
  const char* const value = std::getenv("QUIRE_CUDA_CLUSTERS");
  return value && std::string_view(value) == "on";
}

class GpuGraph final : public Device::Graph {
 public:
  explicit GpuGraph(cudaGraphExec_t graph) : graph(graph) {}
  ~GpuGraph() override { cudaGraphExecDestroy(graph); }
  const cudaGraphExec_t graph;
};

class GpuMark final : public Device::Mark {
 public:
  GpuMark() { check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event"); }
  ~GpuMark() override { cudaEventDestroy(event); }
  cudaEvent_t event = nullptr;
};

class GpuDevice final : public Device {
 public:
  explicit GpuDevice(int index) {
    check(cudaSetDevice(index), "be selected");
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, index), "say what it is");
    facts_ = {.name = properties.name,
              .number = index,
              .major = properties.major,
              .minor = properties.minor,
              .processors = properties.multiProcessorCount,
              .shared_bytes = static_cast<int>(properties.sharedMemPerBlockOptin),
              .memory = properties.totalGlobalMem,
              .clusters = properties.major == 9 && wants_clusters()};
    if (facts_.major < kLeastMajor) {
      throw Error(ErrorKind::kUnsupported, facts_.name + " has compute capability " + std::to_string(facts_.major) +
                                               "." + std::to_string(facts_.minor) +
                                               ", but Quire needs 8.0 (Ampere) or later; leave out --device");
    }
    index_ = index;
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
    check(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking), "make a stream");
  }
  ~GpuDevice() override {
    cudaStreamDestroy(stream_);
    cudaStreamDestroy(copies_);
  }

  const DeviceFacts& facts() const override { return facts_; }
  size_t free_memory() const override {
    use();
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "say how much memory is free");
    return free;
  }

  std::byte* allocate(size_t bytes) override {
    use();
    void* memory = nullptr;
    if (cudaMalloc(&memory, std::max<size_t>(bytes, 1)) != cudaSuccess) {
      cudaGetLastError();
      throw Error(ErrorKind::kResource, "cannot allocate " + mib(bytes) + " on " + facts_.name + ", which has " +
                                            mib(free_memory()) + " free; lower --gpu-memory-utilization");
    }
    check(cudaMemsetAsync(memory, 0, bytes, copies_), "clear memory");
    check(cudaStreamSynchronize(copies_), "clear memory");
    return static_cast<std::byte*>(memory);
  }
  void free(std::byte* memory) override {
    use();
    cudaFree(memory);
  }
  std::byte* allocate_host(size_t bytes) override {
    use();
    void* memory = nullptr;
    check(cudaMallocHost(&memory, std::max<size_t>(bytes, 1)), "pin memory of the host");
    return static_cast<std::byte*>(memory);
  }
  void free_host(std::byte* memory) override { cudaFreeHost(memory); }
  bool pin(std::byte* memory, size_t bytes) override {
    use();
    if (cudaHostRegister(memory, bytes, cudaHostRegisterPortable) == cudaSuccess) return true;
    cudaGetLastError();
    return false;
  }
  void unpin(std::byte* memory) override { cudaHostUnregister(memory); }

  void upload(std::byte* to, const std::byte* from, size_t bytes) override { transfer(to, from, bytes, "be written"); }
  void download(std::byte* to, const std::byte* from, size_t bytes) override { transfer(to, from, bytes, "be read"); }
  void copy(std::byte* to, const std::byte* from, size_t bytes) override { transfer(to, from, bytes, "copy"); }

  BoxMap map_boxes(const std::byte* data, int rows, int columns, size_t stride, int box_rows) override {
    use();
    BoxMap box{};
    const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
    const cuuint64_t strides[] = {stride};
    const cuuint32_t box_sizes[] = {kBoxColumns, static_cast<cuuint32_t>(box_rows)}, steps[] = {1, 1};
    const CUresult result =
        encode_map()(&box.map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<std::byte*>(data), sizes, strides,
                     box_sizes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                     CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) {
      throw Error(ErrorKind::kResource, "the GPU failed to describe a matrix of " + std::to_string(rows) + " rows of " +
                                            std::to_string(columns) + " numbers: error " + std::to_string(result));
    }
    return box;
  }

  void upload_in_order(std::byte* to, const std::byte* from, size_t bytes) override {
    use();
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "be written");
  }
  void run(std::span<const Launch> launches) override {
    use();
    for (const Launch& launch : launches) start(launch);
  }
  void download_in_order(std::byte* to, const std::byte* from, size_t bytes) override {
    use();
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "be read");
  }
  void finish() override {
    use();
    check(cudaStreamSynchronize(stream_), "run a step");
  }
  std::unique_ptr<Mark> make_mark() override {
    use();
    return std::make_unique<GpuMark>();
  }
  void mark(Mark& mark) override {
    use();
    check(cudaEventRecord(static_cast<GpuMark&>(mark).event, stream_), "mark a step");
  }
  void wait(Mark& mark) override {
    use();
    check(cudaEventSynchronize(static_cast<GpuMark&>(mark).event), "run a step");
  }
  void* stream() override {
    use();
    return stream_;
  }

  std::unique_ptr<Graph> record(std::span<const Launch> launches) override {
    use();
    for (const Launch& launch : launches) allow_shared(launch);
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "record a graph");
    cudaGraph_t graph = nullptr;
    try {
      for (const Launch& launch : launches) start(launch);
    } catch (...) {
      cudaStreamEndCapture(stream_, &graph);
      if (graph) cudaGraphDestroy(graph);
      throw;
    }
    check(cudaStreamEndCapture(stream_, &graph), "record a graph");
    cudaGraphExec_t ready = nullptr;
    const cudaError_t error = cudaGraphInstantiate(&ready, graph, 0);
    cudaGraphDestroy(graph);
    check(error, "make a graph");
    return std::make_unique<GpuGraph>(ready);
  }
  void run(Graph& graph) override {
    use();
    check(cudaGraphLaunch(static_cast<GpuGraph&>(graph).graph, stream_), "start a graph");
  }

 private:
  void use() const { check(cudaSetDevice(index_), "be selected"); }  // of this thread; costs nothing if it is

  // A function of the driver, which the runtime has no other name for.
  decltype(&cuTensorMapEncodeTiled) encode_map() {
    if (!encode_map_) {
      constexpr unsigned kVersion = 12000;  // of CUDA, that has it
      void* function = nullptr;
      cudaDriverEntryPointQueryResult found;
      check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kVersion, cudaEnableDefault, &found),
            "find cuTensorMapEncodeTiled in its driver");
      if (found != cudaDriverEntryPointSuccess)
        throw Error(ErrorKind::kUnsupported, "the driver of " + facts_.name + " has no cuTensorMapEncodeTiled");
      encode_map_ = reinterpret_cast<decltype(encode_map_)>(function);
    }
    return encode_map_;
  }

  void transfer(std::byte* to, const std::byte* from, size_t bytes, const char* what) {
    use();
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, copies_), what);
    check(cudaStreamSynchronize(copies_), what);
  }

  void allow_shared(const Launch& launch) {
    if (launch.shape.shared_bytes <= kSharedWithoutAsking || !with_shared_.insert(launch.entry->function).second)
      return;
    check(
        cudaFuncSetAttribute(launch.entry->function, cudaFuncAttributeMaxDynamicSharedMemorySize, facts_.shared_bytes),
        "give a kernel its shared memory");
  }

  void start(const Launch& launch) {
    allow_shared(launch);
    cudaLaunchAttribute attributes[2];
    unsigned count = 0;
    if (facts_.major >= 9) {
      attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attributes[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (launch.shape.cluster > 1) {
      attributes[count].id = cudaLaunchAttributeClusterDimension;
      attributes[count++].val.clusterDim = {static_cast<unsigned>(launch.shape.cluster), 1, 1};
    }
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(launch.shape.x), static_cast<unsigned>(launch.shape.y),
                          static_cast<unsigned>(launch.shape.z));
    config.blockDim = dim3(static_cast<unsigned>(launch.shape.threads));
    config.dynamicSmemBytes = static_cast<size_t>(launch.shape.shared_bytes);
    config.stream = stream_;
    config.attrs = attributes;
    config.numAttrs = count;
    void* arguments[] = {const_cast<std::byte*>(launch.kernel.data())};
    if (const cudaError_t error = cudaLaunchKernelExC(&config, launch.entry->function, arguments); error != cudaSuccess)
      check(error, (std::string("start ") + launch.entry->name).c_str());
  }

  DeviceFacts facts_;
  int index_ = 0;
  cudaStream_t stream_ = nullptr, copies_ = nullptr;
  std::set<const void*> with_shared_;  // functions that may have as much as there is
  decltype(&cuTensorMapEncodeTiled) encode_map_ = nullptr;
};

}  // namespace

std::unique_ptr<Device> open(int index) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    throw Error(ErrorKind::kUnsupported, "--device cuda needs an NVIDIA driver for CUDA " +
                                             std::to_string(CUDART_VERSION / 1000) +
                                             " or later; this machine has none, or an older one");
  }
  if (error != cudaSuccess || count == 0) {
    throw Error(ErrorKind::kUnsupported, std::string("--device cuda finds no NVIDIA GPU (") +
                                             cudaGetErrorString(error == cudaSuccess ? cudaErrorNoDevice : error) +
                                             ")");
  }
  if (index < 0 || index >= count) {
    throw Error(ErrorKind::kInvalid, "--device cuda:" + std::to_string(index) + " does not exist; this machine has " +
                                         std::to_string(count) + " (cuda:0 to cuda:" + std::to_string(count - 1) + ")");
  }
  return std::make_unique<GpuDevice>(index);
}

}  // namespace quire::cuda
