// A device that runs kernels: its memory, and the order of launches. There are two: an NVIDIA GPU (gpu/device.cc) and an
// emulated one on the host's processor (emulated/device.cc), which is for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "cuda/launch.h"

namespace quire::cuda {

struct DeviceFacts {
  std::string name;          // "NVIDIA H100 80GB HBM3"
  int number = 0;            // of those of its kind
  int major = 0, minor = 0;  // compute capability
  int processors = 0;        // streaming multiprocessors
  int shared_bytes = 0;      // that a block can have
  size_t memory = 0;         // bytes
  bool clusters = false;     // it runs kernels of clusters of thread blocks
  bool emulated = false;     // its speed says nothing about kernels
};

// Functions throw Error: kResource: memory is short, or the device has failed.
class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceFacts& facts() const = 0;
  virtual size_t free_memory() const = 0;

  // Zeroed, at a multiple of 256 bytes. These functions may be called from any thread; they wait for nothing but their own
  // work.
  virtual std::byte* allocate(size_t bytes) = 0;
  virtual void free(std::byte* memory) = 0;
  // Memory of the host that upload() and download() are fastest with.
  virtual std::byte* allocate_host(size_t bytes) = 0;
  virtual void free_host(std::byte* memory) = 0;
  // Makes other memory of the host as fast, for all devices, until unpin(). false: it cannot be.
  virtual bool pin(std::byte* memory, size_t bytes) = 0;
  virtual void unpin(std::byte* memory) = 0;
  // Return when it is done.
  virtual void upload(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void download(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void copy(std::byte* to, const std::byte* from, size_t bytes) = 0;

  // A matrix of 2-byte numbers in the device's memory, for copy_box(): [rows][columns], with `stride` bytes from row to row, a multiple
  // of 16. box_rows: up to 256. Only for devices with clusters.
  virtual BoxMap map_boxes(const std::byte* data, int rows, int columns, size_t stride, int box_rows) = 0;

  // ---- The stream: work that is done in order. One thread at a time.

  virtual void upload_in_order(std::byte* to, const std::byte* from, size_t bytes) = 0;  // from: allocate_host()
  virtual void run(std::span<const Launch> launches) = 0;
  // Done when finish() returns. to: allocate_host()
  virtual void download_in_order(std::byte* to, const std::byte* from, size_t bytes) = 0;
  // Waits for the stream.
  virtual void finish() = 0;
  // A place in the stream.
  class Mark {
   public:
    virtual ~Mark() = default;
  };
  virtual std::unique_ptr<Mark> make_mark() = 0;
  // Moves it after the work so far.
  virtual void mark(Mark& mark) = 0;
  // Waits for the work before the mark, which has been set.
  virtual void wait(Mark& mark) = 0;
  // The CUDA stream, for libraries that add work of their own; it makes the device that of the calling thread. nullptr: it is none.
  virtual void* stream() { return nullptr; }

  // Launches that can be repeated at a lower cost: a CUDA graph. nullptr: this device has none.
  class Graph {
   public:
    virtual ~Graph() = default;
  };
  virtual std::unique_ptr<Graph> record(std::span<const Launch> launches) = 0;
  virtual void run(Graph& graph) = 0;
};

// Throws Error: there is no such device, or no driver that can use it; the message says which.
std::unique_ptr<Device> open(int index);

}  // namespace quire::cuda
