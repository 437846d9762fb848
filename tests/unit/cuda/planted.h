// Kernels written in place, as lambdas, and the faults that the emulated device finds in them.
#pragma once

#include <string>

#include "cuda/emulated/fault.h"
#include "unit/cuda/device_values.h"

namespace quire::cuda {

template <class Body>
struct Planted {
  static constexpr const char* kName = "planted";
  static constexpr int kThreads = 1024;
  Body body;
  DEVICE void operator()() const { body(); }
};

template <class Body>
Planted<Body> planted(Body body) {
  return {body};
}

// What is wrong with the body of a kernel; empty: nothing.
template <class Body>
std::string fault_of(Device& device, const LaunchShape& shape, const Body& body) {
  std::string message;
  try {
    run_alone(device, shape, planted(body));
  } catch (const DeviceFault& fault) {
    message = fault.what();
  }
  device.finish();
  return message;
}

}  // namespace quire::cuda
