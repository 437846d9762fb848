// Devices that compute in place of the CPU.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/cpu/cpu_backend.h"
#include "quire/engine.h"

namespace quire {

// NAME or NAME:N.
struct DeviceName {
  std::string library;  // NAME, of lower-case letters, digits and dashes
  int index = 0;
};
std::optional<DeviceName> parse_device_name(std::string_view text);  // nullopt: it is no name

// The devices that compute, by rank, as open_device() takes them: of EngineOptions::device. With several ranks NAME stands for
// NAME:0, NAME:1, ..., and others are listed: NAME:1,NAME:3. Throws Error: they are not as many as the ranks, or one is named twice.
std::vector<std::string> device_names(const EngineOptions& options);

// Whether a device computes, if only some of the layers.
inline bool uses_device(const EngineOptions& options) { return options.device != "cpu" && options.gpu_layers != 0; }

// The backend of the device that computes; nullptr: the CPU does. name: "cpu"; or NAME or NAME:N, the backend in the library
// libquire_NAME.so beside the program or in ../lib/quire, and the number of its device. It stays loaded. Throws Error:
// there is no such library, it was built for another version of the program, or the device cannot be used.
//
// Tests link another function, which can put a fence around the memory (tests/fenced/) or compute on the emulated GPU.
std::unique_ptr<Backend> open_device(std::string_view name, CpuBackend& cpu);

// What the library of a backend has, as "quire_open_backend". version: of the interface, kBackendVersion.
using OpenBackend = Backend* (*)(int device, const char* version);

}  // namespace quire
