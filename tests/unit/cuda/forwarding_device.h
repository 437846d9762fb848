// A device that hands all calls to another. Tests override what they look at.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "cuda/device.h"

namespace quire::cuda {

class ForwardingDevice : public Device {
 public:
  // device: must outlive this.
  explicit ForwardingDevice(Device& device) : device_(device) {}

  const DeviceFacts& facts() const override { return device_.facts(); }
  size_t free_memory() const override { return device_.free_memory(); }
  std::byte* allocate(size_t bytes) override { return device_.allocate(bytes); }
  void free(std::byte* memory) override { device_.free(memory); }
  std::byte* allocate_host(size_t bytes) override { return device_.allocate_host(bytes); }
  void free_host(std::byte* memory) override { device_.free_host(memory); }
  bool pin(std::byte* memory, size_t bytes) override { return device_.pin(memory, bytes); }
  void unpin(std::byte* memory) override { device_.unpin(memory); }
  void upload(std::byte* to, const std::byte* from, size_t bytes) override { device_.upload(to, from, bytes); }
  void download(std::byte* to, const std::byte* from, size_t bytes) override { device_.download(to, from, bytes); }
  void copy(std::byte* to, const std::byte* from, size_t bytes) override { device_.copy(to, from, bytes); }
  BoxMap map_boxes(const std::byte* data, int rows, int columns, size_t stride, int box_rows) override {
    return device_.map_boxes(data, rows, columns, stride, box_rows);
  }
  void download_in_order(std::byte* to, const std::byte* from, size_t bytes) override {
    device_.download_in_order(to, from, bytes);
  }
  void upload_in_order(std::byte* to, const std::byte* from, size_t bytes) override {
    device_.upload_in_order(to, from, bytes);
  }
  void run(std::span<const Launch> launches) override { device_.run(launches); }
  void finish() override { device_.finish(); }
  std::unique_ptr<Mark> make_mark() override { return device_.make_mark(); }
  void mark(Mark& mark) override { device_.mark(mark); }
  void wait(Mark& mark) override { device_.wait(mark); }
  std::unique_ptr<Graph> record(std::span<const Launch> launches) override { return device_.record(launches); }
  void run(Graph& graph) override { device_.run(graph); }

 private:
  Device& device_;
};

}  // namespace quire::cuda
