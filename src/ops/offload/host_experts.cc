#include "ops/offload/host_experts.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace quire {
namespace {

OperationLimits on_host(const OperationLimits& limits) {
  OperationLimits host;
  host.max_rows = limits.max_rows;
  host.forms = limits.forms;
  host.experts = limits.experts;
  return host;
}

size_t bytes_of_rows(const OperationLimits& limits, int cols) {
  return static_cast<size_t>(limits.max_rows) * row_stride(cols) * sizeof(float);
}

// From the first number of rows to the last.
size_t floats_of(const Rows& x, int rows) {
  return static_cast<size_t>(rows - 1) * x.stride + static_cast<size_t>(x.cols);
}

class HostExpertsOperations final : public ForwardingOperations {
 public:
  HostExpertsOperations(std::unique_ptr<Operations> inner, std::unique_ptr<Operations> host, Backend& device,
                        const OperationLimits& limits, std::atomic<uint64_t>& moved_bytes)
      : ForwardingOperations(std::move(inner)), host_(std::move(host)), device_(device), moved_bytes_(moved_bytes) {
    scores_.room(device, bytes_of_rows(limits, 2 * limits.experts.experts));
    for (HostCopy* const copy : {&x_, &result_}) copy->room(device, bytes_of_rows(limits, limits.experts.hidden));
  }

  void discard() noexcept override {
    inner().discard();
    host_->discard();
  }
  void observe_inputs(InputObserver* observer) override {
    inner().observe_inputs(observer);
    host_->observe_inputs(observer);
  }

  void route(const RouteArgs& args, int rows) override {
    if (!args.on_host) return inner().route(args, rows);
    if (rows == 0) return;
    inner().finish();
    RouteArgs here = args;
    here.scores = view(args.scores, rows, scores_);
    host_->route(here, rows);
  }

  void run_experts(const ExpertArgs& args, int rows) override {
    if (!args.on_host) return inner().run_experts(args, rows);
    if (rows == 0) return;
    inner().finish();
    const Rows& to = args.target.to;
    assert(to.stride == row_stride(to.cols));  // what lies between its rows is overwritten
    ExpertArgs here = args;
    here.x = view(args.x, rows, x_);
    // Sums begin with what is there, as they do if one backend computes: so they are rounded alike.
    here.target.to = args.target.accumulate ? view(to, rows, result_) : room(to, rows, result_);
    host_->run_experts(here, rows);
    host_->finish();
    const size_t bytes = floats_of(to, rows) * sizeof(float);
    moved_bytes_ += bytes;
    device_.write(reinterpret_cast<std::byte*>(to.data), bytes,
                  [&](std::span<std::byte> host) { std::memcpy(host.data(), here.target.to.data, host.size()); });
  }

  uint64_t take_expert_bytes() override { return inner().take_expert_bytes() + host_->take_expert_bytes(); }

 private:
  // Rows of the device for the host.
  Rows view(const Rows& x, int rows, HostCopy& copy) {
    moved_bytes_ += floats_of(x, rows) * sizeof(float);
    return {view_floats(device_, x.data, floats_of(x, rows), copy).data(), x.cols, x.stride};
  }
  // Likewise, without their numbers.
  Rows room(const Rows& x, int rows, HostCopy& copy) {
    const auto bytes = copy.room(device_, floats_of(x, rows) * sizeof(float));
    return {reinterpret_cast<float*>(bytes.data()), x.cols, x.stride};
  }

  const std::unique_ptr<Operations> host_;
  Backend& device_;
  std::atomic<uint64_t>& moved_bytes_;
  HostCopy scores_, x_, result_;
};

}  // namespace

std::unique_ptr<Operations> HostExpertsBackend::operations(Activations activations, const OperationLimits& limits) {
  return std::make_unique<HostExpertsOperations>(inner().operations(activations, on_device(limits, all_)),
                                                 host_.operations(activations_, on_host(limits)), inner(), limits,
                                                 moved_bytes_);
}

OperationLimits HostExpertsBackend::on_device(OperationLimits limits, bool all) {
  if (all) limits.experts = {};
  return limits;
}

// Backend::write() has the results once more.
size_t HostExpertsBackend::host_bytes(const OperationLimits& limits, const OperationsBytes& host) {
  return host(on_host(limits)) + bytes_of_rows(limits, 2 * limits.experts.experts) +
         3 * bytes_of_rows(limits, limits.experts.hidden);
}

}  // namespace quire
