#include "engine/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <random>
#include <system_error>
#include <utility>

#include "base/cpu.h"
#include "base/files/home_folder.h"
#include "base/files/mapped_file.h"
#include "json/field.h"
#include "kernels/kernels.h"
#include "model/tensors.h"

namespace quire {
namespace {

constexpr int kFileVersion = 1;
// Increase this when loops change: choices of older ones are measured again.
constexpr int kLoopsVersion = 1;
constexpr size_t kMostFileBytes = size_t{4} << 20;
constexpr size_t kMostMachines = 64;

// Smaller models stay in the caches, and start too often for measuring to pay.
constexpr size_t kLeastBytes = size_t{16} << 20;

// SmolLM2 0.3 s, 8 billion parameters of 4 bits 2.6 s.
double seconds_to_measure(size_t bytes) { return std::min(3.0, 0.25 + static_cast<double>(bytes) / 2e9); }

// What a file of this version says of its machines. Throws Error.
JsonField read_machines(const std::filesystem::path& path) {
  const auto file = JsonField::read(path, kMostFileBytes);
  if (const JsonField version = file.at("version"); version.as<int>() != kFileVersion)
    throw version.error("expected {}, found {}", kFileVersion, version.as<int>());
  return file.at("machines").object();
}

}  // namespace

std::filesystem::path default_tuning_file() {
  const std::filesystem::path folder = cache_folder();
  return folder.empty() ? folder : folder / "tuning.json";
}

std::string tuning_machine(const Compute& compute) {
  return fmt::format("{}, microcode {}, {}, {} threads, loops {}", cpu_name(), cpu_microcode(), compute.kernels.name,
                     compute.team.size(), kLoopsVersion);
}

TuningFile::TuningFile(std::filesystem::path path, std::string machine, Warn warn)
    : path_(std::move(path)), machine_(std::move(machine)), warn_(std::move(warn)) {}

TuningFile::Choices TuningFile::read() const {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path_, error)) return {};  // save() warns of a folder in its place
  try {
    Choices choices;
    if (const auto mine = read_machines(path_).find(machine_)) {
      for (const auto& [kind, loop] : mine->members()) choices.emplace(kind, loop.string());
    }
    return choices;
  } catch (const Error& damaged) {
    warn_(fmt::format("{}; the file is ignored, and the loops of this machine are measured again", damaged.what()));
    return {};
  }
}

void TuningFile::save(const Choices& choices) const {
  Json machines = Json::object();
  try {
    machines = read_machines(path_).json();
  } catch (const Error&) {  // missing, or damaged: read() has said so
  }
  machines.erase(machine_);
  while (machines.size() >= kMostMachines)
    machines.erase(machines.begin());  // any: nothing says which one is the oldest
  machines[machine_] = choices;
  std::error_code error;
  std::filesystem::create_directories(path_.parent_path(), error);
  const std::filesystem::path unfinished = path_.string() + fmt::format(".{:08x}.tmp", std::random_device()());
  if (!error) {
    errno = 0;
    std::ofstream out(unfinished, std::ios::binary);
    out << Json({{"version", kFileVersion}, {"machines", std::move(machines)}})
               .dump(1, ' ', false, Json::error_handler_t::replace)
        << '\n';
    out.close();
    if (!out) error = std::error_code(errno != 0 ? errno : EIO, std::generic_category());
  }
  if (!error) std::filesystem::rename(unfinished, path_, error);
  if (!error) return;
  warn_(fmt::format("cannot write {}: {}; the next start measures the loops of linears again", path_.string(),
                    error.message()));
  std::filesystem::remove(unfinished, error);
}

std::vector<TunedMatrix> tuned_matrices(const Model& model, Activations activations) {
  std::vector<TunedMatrix> matrices;
  for_each_matrix(model.config, model.weights, [&](const Slot& slot, const Linear& m) {
    const bool multiplied = slot.tensor != Tensor::kRouter && !is_table(slot.tensor);
    if (multiplied && m.weight.data) matrices.push_back({&m.weight, kernel_form(input_form(activations, m))});
  });
  return matrices;
}

std::vector<TunedProjection> tuned_projections(const Model& model, Activations activations) {
  std::vector<TunedProjection> all;
  Slot last;
  const auto same_inputs = [&](const Linear& a, const Linear& b) {
    return a.weight.cols == b.weight.cols && a.transform == b.transform &&
           input_form(activations, a) == input_form(activations, b);
  };
  for_each_matrix(model.config, model.weights, [&](const Slot& slot, const Linear& m) {
    const bool single = slot.items == 0 && slot.tensor != Tensor::kRouter && !is_table(slot.tensor);
    if (!single || !m.weight.data) return;
    const bool same_layer = !all.empty() && slot.layer >= 0 && slot.layer == last.layer;
    const bool goes_on = slot.tensor == Tensor::kK || slot.tensor == Tensor::kV;
    const bool is_up = slot.tensor == Tensor::kUp && last.tensor == Tensor::kGate;
    if (same_layer && goes_on && same_inputs(*all.back().matrices[0], m)) {
      all.back().matrices.push_back(&m);
    } else if (same_layer && is_up && all.back().matrices[0]->weight.format == m.weight.format &&
               same_inputs(*all.back().matrices[0], m)) {
      all.back().up = &m;
    } else {
      all.push_back({.matrices = {&m}});
    }
    last = slot;
  });
  return all;
}

void tune(Backend& backend, const Model& model, Activations activations, int rows, const TuningFile& file, bool force,
          const OnLoad& report) {
  if (!force && model.weights.matrix_bytes < kLeastBytes) return;
  TuningFile::Choices choices = file.read();
  const TuningFile::Choices measured =
      backend.tune(tuned_projections(model, activations), activations, rows, force ? TuningFile::Choices() : choices,
                   [&](size_t done, size_t total) {
                     if (report) report({LoadProgress::Stage::kTuning, done, total});
                   });
  if (measured.empty()) return;
  for (const auto& [kind, kernel] : measured) choices[kind] = kernel;
  file.save(choices);
}

void tune(const Compute& compute, Tuning& tuning, const Model& model, const TuningFile& file, bool force,
          const OnLoad& report) {
  if (!force && model.weights.matrix_bytes < kLeastBytes) return;
  const std::vector<TunedMatrix> matrices = tuned_matrices(model, compute.activations);
  TuningFile::Choices choices = file.read();
  const auto choose_known = [&](const LinearKind& kind, const PackedMatrix& weights) {
    const auto at = choices.find(name(kind));
    if (at == choices.end()) return false;
    for (const LinearLoop& loop : loops_of(compute.kernels, weights, kind)) {
      if (name(loop) == at->second) return tuning.choose(kind, loop), true;
    }
    return false;
  };
  std::map<LinearKind, bool> wanted;
  for (int rows = 1; rows <= kMostTunedRows; rows *= 2) {
    for (const TunedMatrix& m : matrices) {
      const LinearKind kind = linear_kind(*m.weights, m.inputs, rows);
      if (!wanted.contains(kind)) wanted[kind] = force || !choose_known(kind, *m.weights);
    }
  }
  const std::vector<MeasuredKind> measured = measure_loops(
      compute, matrices, [&](const LinearKind& kind) { return wanted.at(kind); },
      seconds_to_measure(model.weights.matrix_bytes),
      [&](size_t done, size_t total) {
        if (report) report({LoadProgress::Stage::kTuning, done, total});
      });
  if (measured.empty()) return;
  for (const MeasuredKind& kind : measured) {
    const LinearLoop& best = kind.loops[kind.best].loop;
    tuning.choose(kind.kind, best);
    choices[name(kind.kind)] = name(best);
  }
  file.save(choices);
}

}  // namespace quire
