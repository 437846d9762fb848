// A backend whose memory the host cannot touch: the CPU's operations on a mapping that is inaccessible outside of them.
// It shares no memory with the host, so weights, packs and logits are copied.
//
// Code that follows an address of a backend, instead of handing it on, dies here. So does, by a message, code that reads or
// writes memory while operations may still run.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "ops/cpu/cpu_backend.h"

namespace quire::testing {

class FencedBackend final : public Backend {
 public:
  // cpu: what computes. It must outlive this. close_after: operations. Closing takes as long as a small operation, and
  // every few operations will do for code that runs often.
  explicit FencedBackend(CpuBackend& cpu, unsigned close_after = 1);
  ~FencedBackend() override;

  std::string_view name() const override { return cpu_.name(); }
  Activations default_activations() const override { return cpu_.default_activations(); }
  std::optional<size_t> own_memory() const override { return {}; }
  bool reads_experts() const override { return true; }
  bool picks_logits() const override { return true; }
  int packing_version() const override { return cpu_.packing_version(); }
  std::unique_ptr<Operations> operations(Activations activations, const OperationLimits& limits) override;
  size_t operations_bytes(const OperationLimits& limits) const override { return cpu_.operations_bytes(limits); }

  std::byte* allocate(size_t bytes) override;
  void free(std::byte* memory, size_t bytes) override;
  const std::byte* share(std::span<const std::byte>) override { return nullptr; }
  void write(std::byte* to, size_t bytes, const Fill& fill) override;
  std::span<std::byte> view(std::byte* from, size_t bytes, HostCopy& copy) override;
  // These may be called while operations run, for memory that they do not use. The emulated GPU checks which memory that is.
  void upload(std::span<const std::byte> from, std::byte* to) override;
  void read(std::byte* from, std::span<std::byte> to) override;
  void copy(std::byte* to, const std::byte* from, size_t bytes) override;
  void take_rows(const PackedMatrix& from, std::span<const int32_t> rows, std::byte* to) override;

  // While there is one, the memory is accessible.
  class Opening {
   public:
    explicit Opening(FencedBackend& backend);
    ~Opening();
    Opening(const Opening&) = delete;
    Opening& operator=(const Opening&) = delete;

   private:
    FencedBackend& backend_;
  };
  std::atomic<int> unfinished{0};  // operations of so many models may still run
  const unsigned close_after;

 private:
  void protect(bool accessible);
  void check_finished() const;

  CpuBackend& cpu_;
  std::byte* const begin_;  // where the mapping begins
  std::mutex mutex_;
  size_t used_ = 0;                                // bytes, whole cache lines
  std::multimap<size_t, std::byte*> free_ranges_;  // by bytes
  int openings_ = 0;
};

}  // namespace quire::testing
