#include "cli/quantize/allocate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <utility>

#include "base/cpu.h"
#include "base/error.h"
#include "base/files/output_folder.h"
#include "cli/chat/output.h"
#include "cli/flags/engine_options.h"
#include "cli/quantize/output_probe.h"
#include "cli/terminal/text_table.h"
#include "cli/text/chunk_run.h"
#include "quant/encode.h"
#include "quantize/allocation/allocation_file.h"
#include "quantize/allocation/type_errors.h"

namespace quire {
namespace {

constexpr double kMostBits = 32;

std::span<const float> importance_of(const PlannedTensor& tensor, const QuantizeOptions& options,
                                     std::vector<float>& means) {
  if (!options.importance) return {};
  const auto entry = options.importance->entries.find(tensor.name);
  if (entry == options.importance->entries.end()) return {};
  means = ImportanceMatrix::mean_squares(entry->second);
  if (means.size() != tensor.cols() * stacked_matrices(tensor)) return {};  // of a table's transposed use
  return means;
}

// The choices of a group: types that lose less than all smaller ones. Matrices that fit no blocks stay as they are.
GroupAllocation choices_of(const TensorGroup& group, const FilePlan& file, const AllocateJob& job, Team& team) {
  std::vector<TensorType> types = types_to_allocate(job.options.importance != nullptr);
  for (const size_t i : group.tensors) {
    const TensorType now = file.tensors[i].type;
    if (info(now).block_elements > 1 && std::ranges::find(types, now) == types.end()) types.push_back(now);
  }
  GroupAllocation out{.name = group.name};
  std::vector<double> errors(types.size());
  std::vector<float> means;
  for (const size_t i : group.tensors) {
    const PlannedTensor& tensor = file.tensors[i];
    out.tensors.push_back(tensor.name);
    out.elements += tensor.elements();
    const auto more =
        sampled_errors(tensor, types, importance_of(tensor, job.options, means), job.checkpoint.file(), team);
    std::ranges::transform(errors, more, errors.begin(), std::plus<>());
  }
  const auto add = [&](TensorType type, double error) {
    uint64_t bytes = 0;
    for (const size_t i : group.tensors) bytes += tensor_bytes(type, file.tensors[i].shape).value();
    out.choices.push_back({.type = type, .bytes = bytes, .error = error});
  };
  for (size_t i = 0; i < types.size(); ++i) {
    if (std::isfinite(errors[i])) add(types[i], errors[i]);
  }
  if (out.choices.empty()) {
    const TensorType now = file.tensors[group.tensors.front()].type;
    add(info(now).block_elements > 1 || !is_writable(now) ? TensorType::F32 : now, 0);
  }
  remove_worse(out.choices);
  return out;
}

Allocation choices_of_model(const FilePlan& file, const AllocateJob& job) {
  Team team(job.threads > 0 ? job.threads : usable_cores());
  Allocation allocation;
  for (const PlannedTensor& tensor : file.tensors) {
    allocation.elements += tensor.elements();
    allocation.other_bytes += tensor_bytes(tensor.type, tensor.shape).value();
  }
  const std::vector<TensorGroup> groups = group_tensors(file);
  if (groups.empty()) throw invalid("{} has no matrices that can be quantized", job.input);
  job.progress.stage("trying types");
  for (const TensorGroup& group : groups) {
    job.check();
    job.progress.step(allocation.groups.size(), groups.size());
    for (const size_t i : group.tensors)
      allocation.other_bytes -= tensor_bytes(file.tensors[i].type, file.tensors[i].shape).value();
    allocation.groups.push_back(choices_of(group, file, job, team));
  }
  return allocation;
}

// Files of the model in the types to try, in a folder that goes when the object does.
class TrialFiles {
 public:
  explicit TrialFiles(const AllocateJob& job)
      : job_(job),
        folder_(job.output.empty() ? std::filesystem::temp_directory_path() / "quire-trials"
                                   : std::filesystem::path(job.output + ".trials"),
                false),
        team_(job.threads > 0 ? job.threads : usable_cores()) {}

  // The model as a GGUF file in its own types, whose matrices are laid out as those of the trials.
  std::string original() {
    if (job_.checkpoint.gguf()) return job_.checkpoint.file();
    const std::filesystem::path path = folder_.unfinished_path() / "original.gguf";
    FilePlan file = plan_file(job_.checkpoint, job_.options.name);
    job_.progress.stage("writing the model in its own types");
    write_file(job_.checkpoint, file, path, {.progress = progress()}, team_);
    return path.string();
  }
  std::string trial(std::map<std::string, TensorType, std::less<>> types) {
    const std::filesystem::path path = folder_.unfinished_path() / "trial.gguf";
    QuantizeOptions options = job_.options;
    options.types = std::move(types);
    QuantizePlan plan = plan_quantization(job_.checkpoint, options);
    job_.progress.stage("quantizing for a trial");
    write_quantized(job_.checkpoint, plan, options, path, team_, progress());
    return path.string();
  }

 private:
  std::function<void(size_t written, size_t total)> progress() {
    return [this](size_t written, size_t total) {
      job_.check();
      job_.progress.step(written, total);
    };
  }

  const AllocateJob& job_;
  OutputFolder folder_;
  Team team_;
};

// A chunk's text that calibration has not seen, if the text is long enough; else its end.
TextChunks text_to_measure(LoadedModel& model, const AllocateFlags& flags, const AllocateJob& job) {
  if (job.calibration.file.empty()) {
    job.progress.stage("writing a text to measure on");
    return written_by_model(model, flags.context, flags.chunks, [&](size_t done, size_t total) {
      job.check();
      job.progress.step(done, total);
    });
  }
  TextChunks text = read_chunks(model, job.calibration.file, flags.context, -1);
  const size_t wanted = std::min(static_cast<size_t>(flags.chunks), text.count());
  size_t first = text.count() - wanted;
  if (job.calibration.chunks >= 0) {
    const size_t seen = static_cast<size_t>(job.calibration.chunks) * static_cast<size_t>(job.calibration.context);
    first = std::min(first, (seen + text.size - 1) / text.size);
  }
  const auto begin = text.ids.begin() + static_cast<ptrdiff_t>(first * text.size);
  text.ids = TokenIds(begin, begin + static_cast<ptrdiff_t>(wanted * text.size));
  return text;
}

// What is measured: for each trial file the choice of each group; nothing for groups that have fewer to measure.
using Trial = std::vector<std::optional<size_t>>;

std::vector<Trial> plan_trials(const Allocation& allocation, double target) {
  std::vector<Trial> trials;
  for (size_t g = 0; g < allocation.groups.size(); ++g) {
    const std::vector<size_t> wanted = choices_to_measure(allocation.groups[g], target);
    if (wanted.size() > trials.size()) trials.resize(wanted.size(), Trial(allocation.groups.size()));
    for (size_t i = 0; i < wanted.size(); ++i) trials[i][g] = wanted[i];
  }
  return trials;
}

size_t passes_of(std::span<const Trial> trials) {
  size_t passes = 0;
  for (const Trial& trial : trials)
    passes += static_cast<size_t>(std::ranges::count_if(trial, [](const auto& choice) { return choice.has_value(); }));
  return passes;
}

std::map<std::string, TensorType, std::less<>> types_of_trial(const Allocation& allocation, const Trial& trial) {
  std::map<std::string, TensorType, std::less<>> types;
  for (size_t g = 0; g < allocation.groups.size(); ++g) {
    const GroupAllocation& group = allocation.groups[g];
    // What is not measured in this trial gets the type that is fastest to write among the largest.
    const TypeChoice& choice = group.choices[trial[g].value_or(group.choices.size() - 1)];
    for (const std::string& tensor : group.tensors) types.emplace(tensor, choice.type);
  }
  return types;
}

std::string estimate_text(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", std::max(1.0, seconds));
  return seconds < 5400 ? fmt::format("{:.0f} minutes", seconds / 60) : fmt::format("{:.1f} hours", seconds / 3600);
}

class GroupMeasurement {
 public:
  GroupMeasurement(const AllocateFlags& flags, const AllocateJob& job, Allocation& allocation)
      : job_(job),
        allocation_(allocation),
        trials_(plan_trials(allocation, *flags.target)),
        files_(job),
        original_(files_.original()),
        model_(engine_options(flags), kScoredRows),
        text_(text_to_measure(model_, flags, job)),
        probe_(model_, text_),
        passes_(passes_of(trials_) * text_.count()) {}

  void run() {
    allocation_.text = job_.calibration.file;
    allocation_.chunks = static_cast<int>(text_.count());
    allocation_.context = static_cast<int>(text_.size);
    const Checkpoint checkpoint = Checkpoint::open(original_);
    const MatricesOfTensors matrices = matrices_of_tensors(checkpoint, model_.target.config, model_.target.weights);
    for (const Trial& trial : trials_) measure(trial, matrices);
    const double rows = static_cast<double>(probe_.rows() * text_.count());
    for (GroupAllocation& group : allocation_.groups) {
      for (TypeChoice& choice : group.choices) choice.divergence /= rows;
      scale_divergences(group);
    }
  }

 private:
  // The differences are far below what rounded activations would add.
  EngineOptions engine_options(const AllocateFlags& flags) const {
    EngineOptions options;
    options.model = original_;
    options.threads = job_.threads;
    options.activations = "f32";
    options.kv_cache_dtype = "f32";
    options.expert_bytes = kAllExperts;  // their matrices are exchanged
    return one_chunk_at_a_time(std::move(options), flags.context);
  }

  // Adds the divergences of the choices of one trial, summed over rows.
  void measure(const Trial& trial, const MatricesOfTensors& matrices) {
    const Checkpoint other = Checkpoint::open(files_.trial(types_of_trial(allocation_, trial)));
    const WeightTotals totals = check_weights(other, model_.target.config);
    const MemoryBudget::Share share = model_.runtime.memory.take([&](size_t left) {
      if (totals.bytes > left)
        throw no_resource("a trial needs {} bytes of memory besides the model, but {} are left", totals.bytes, left);
      return static_cast<size_t>(totals.bytes);
    });
    Weights weights = load_weights(other, model_.target.config, model_.runtime.backend(), model_.runtime.team,
                                   {.memory = share.bytes()});
    const MatricesOfTensors others = matrices_of_tensors(other, model_.target.config, weights);
    for (size_t chunk = 0; chunk < text_.count(); ++chunk) {
      const auto began = std::chrono::steady_clock::now();
      probe_.set_reference(chunk);
      announce(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
      for (size_t g = 0; g < trial.size(); ++g) {
        if (!trial[g]) continue;
        job_.check();
        GroupAllocation& group = allocation_.groups[g];
        job_.progress.step(done_, passes_, group.name);
        const ExchangedTensors exchanged(matrices, others, group.tensors);
        TypeChoice& choice = group.choices[*trial[g]];
        choice.divergence += probe_.divergence();
        choice.measured = true;
        ++done_;
      }
    }
  }

  // Once, before the first pass of a group. seconds: what a pass takes.
  void announce(double seconds) {
    if (std::exchange(announced_, true)) return;
    job_.progress.clear();
    std::fprintf(
        stderr,
        "measuring %zu groups of matrices in up to %zu types each on %zu chunks of %zu tokens: at most %zu passes "
        "and %zu tokens, about %s\n",
        allocation_.groups.size(), trials_.size(), text_.count(), text_.size, passes_, passes_ * text_.size,
        estimate_text(seconds * static_cast<double>(passes_)).c_str());
    job_.progress.stage("measuring");
  }

  const AllocateJob& job_;
  Allocation& allocation_;
  const std::vector<Trial> trials_;
  TrialFiles files_;
  const std::string original_;
  LoadedModel model_;
  const TextChunks text_;
  OutputProbe probe_;
  const size_t passes_;
  size_t done_ = 0;
  bool announced_ = false;
};

Allocation read_plan(const AllocateFlags& flags, const FilePlan& file) {
  Allocation allocation = read_allocation(flags.plan);
  check_allocation(allocation, file, flags.plan);
  if (flags.target) {
    if (!has_choices(allocation))
      throw invalid("{} has no sizes to choose from, so --target-bpw cannot change it; leave one of the two out",
                    flags.plan);
    allocate_bits(allocation, *flags.target);
    check_allocation(allocation, file, flags.plan);
  }
  return allocation;
}

}  // namespace

void add_allocate_flags(CLI::App& command, AllocateFlags& o) {
  o.target_option = command
                        .add_option("--target-bpw", o.target,
                                    "bits a weight of the whole file: types are chosen for each group of matrices so "
                                    "that the model's output changes least, which is measured on the text of "
                                    "--calibrate, or on one that the model writes")
                        ->check(between(1, kMostBits))
                        ->type_name("BITS");
  o.plan_option = command
                      .add_option("--plan", o.plan,
                                  "types of an earlier --plan-out, so that nothing is measured; with --target-bpw, "
                                  "types are chosen again from what it measured")
                      ->type_name("FILE");
  command.add_option("--plan-out", o.plan_out, "write the chosen types, with the measurements, as JSON")
      ->needs(o.target_option)
      ->type_name("FILE");
  command.add_option("--target-chunks", o.chunks, "chunks of text to measure on")
      ->check(between(1, 1e6))
      ->needs(o.target_option)
      ->excludes(o.plan_option)
      ->capture_default_str();
  command.add_option("--target-context", o.context, "tokens of a chunk to measure on")
      ->check(between(8, std::numeric_limits<int>::max()))
      ->needs(o.target_option)
      ->excludes(o.plan_option)
      ->capture_default_str();
}

Allocation allocation_for(const AllocateFlags& flags, const AllocateJob& job) {
  const FilePlan file = plan_file(job.checkpoint, job.options.name);
  if (!flags.plan.empty()) return read_plan(flags, file);
  Allocation allocation = choices_of_model(file, job);
  allocate_bits(allocation, *flags.target);  // refuses a target that is too low before anything is measured
  GroupMeasurement(flags, job, allocation).run();
  allocate_bits(allocation, *flags.target);
  return allocation;
}

void print_allocation(const Allocation& allocation) {
  TextTable table({"group", "type", "bits", "MB", "KL", "", "one smaller", "one larger"}, 2);
  const auto divergence = [](const TypeChoice& choice) { return fmt::format("{:.6f}", choice.divergence); };
  const auto other = [&](const GroupAllocation& group, size_t i) {
    if (i >= group.choices.size()) return std::string("-");
    return fmt::format("{} {}", name(group.choices[i].type), divergence(group.choices[i]));
  };
  for (const GroupAllocation& group : allocation.groups) {
    const TypeChoice& choice = group.choice();
    const double bits =
        8 * static_cast<double>(choice.bytes) / static_cast<double>(std::max<uint64_t>(1, group.elements));
    table.add({escape_controls(group.name, true), std::string(name(choice.type)), fmt::format("{:.4g}", bits),
               fmt::format("{:.2f}", static_cast<double>(choice.bytes) / 1e6), divergence(choice),
               choice.measured    ? "measured"
               : choice.error > 0 ? "scaled"
                                  : "exact",
               other(group, group.chosen - 1), other(group, group.chosen + 1)});
  }
  table.add({"all", "", fmt::format("{:.4g}", allocation.bits_per_weight()),
             fmt::format("{:.2f}", static_cast<double>(allocation.bytes()) / 1e6),
             fmt::format("{:.6f}", allocation.divergence()), "sum", "", ""});
  std::fputs(table.text().c_str(), stdout);
}

}  // namespace quire
