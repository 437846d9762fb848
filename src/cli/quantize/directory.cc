#include "cli/quantize/directory.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "base/cpu.h"
#include "base/error.h"
#include "cli/flags/parsed_by.h"
#include "cli/output_file.h"
#include "cli/quantize/resume.h"
#include "cli/quantize/rotated_copy.h"
#include "cli/terminal/interruptible.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/text_table.h"
#include "model/quantized/one_of.h"
#include "model/registry.h"
#include "quantize/hf/model_writer.h"

namespace quire {
namespace {

constexpr size_t kWorst = 3;  // matrices that the result names
constexpr int kLargestGroup = 1 << 16;

// A flag that was given, and what methods must take for it.
struct GivenFlag {
  const char* flag;
  MethodFlag of;
  bool given;
};

void refuse_unused(const DirectoryFlags& o, const HfMethod& method) {
  const GivenFlag all[] = {{"--bits", MethodFlag::kBits, o.bits.has_value()},
                           {"--group-size", MethodFlag::kGroup, o.group.has_value()},
                           {"--sym", MethodFlag::kSymmetric, o.symmetric},
                           {"--asym", MethodFlag::kSymmetric, o.asymmetric},
                           {"--observer", MethodFlag::kObserver, o.observer.has_value()},
                           {"--act-order", MethodFlag::kOrder, o.act_order},
                           {"--static-groups", MethodFlag::kOrder, o.static_groups},
                           {"--damp-percent", MethodFlag::kOrder, o.damping.has_value()},
                           {"--no-double-quant", MethodFlag::kDouble, o.no_double},
                           {"--alpha", MethodFlag::kAlpha, o.alpha.has_value()}};
  for (const GivenFlag& flag : all) {
    if (flag.given && !(method.flags & static_cast<unsigned>(flag.of)))
      throw CLI::ValidationError(flag.flag, fmt::format("does not apply to --method {}", method.name));
  }
  if (o.bits && std::ranges::find(method.bits, *o.bits) == method.bits.end())
    throw CLI::ValidationError("--bits", fmt::format("{} is not supported for --method {}; use {}", *o.bits,
                                                     method.name, one_of(method.bits)));
}

MethodSettings settings_of(const DirectoryFlags& o, const HfMethod& method) {
  MethodSettings settings = method.defaults;
  settings.bits = o.bits.value_or(settings.bits);
  if (o.group) settings.group = std::max(0, *o.group);
  if (o.symmetric || o.asymmetric) settings.symmetric = o.symmetric;
  if (o.observer) settings.least_squares = *o.observer == "mse";
  settings.act_order = o.act_order;
  settings.static_groups = o.static_groups;
  settings.damping = o.damping;
  settings.double_quantization = !o.no_double;
  settings.alpha = o.alpha;
  return settings;
}

constexpr int kSampleRows = 256;  // of the inputs of each matrix

std::string check_group(const std::string& text) {
  const int group = std::atoi(text.c_str());
  if (group == -1 || group == 16 || (group > 0 && group <= kLargestGroup && group % 32 == 0)) return "";
  return fmt::format("{} is not a number of inputs; use 16, a multiple of 32, or -1 for whole rows", text);
}

void print_all_warnings(std::span<const std::string> warnings) {
  for (const std::string& warning : warnings) std::fprintf(stderr, "quire: warning: %s\n", warning.c_str());
}

void print_directory_plan(const ModelSource& source, const HfPlan& plan) {
  TextTable table({"tensor", "from", "to", "MB", "bits"}, 3);
  uint64_t elements = 0;
  const auto add = [&](std::string what, std::string_view from, std::string_view to, uint64_t bytes, uint64_t count) {
    table.add(
        {std::move(what), std::string(from), std::string(to), fmt::format("{:.2f}", static_cast<double>(bytes) / 1e6),
         fmt::format("{:.4g}", 8.0 * static_cast<double>(bytes) / static_cast<double>(std::max<uint64_t>(1, count)))});
  };
  for (const HfTensorChange& change : plan.changes) {
    const SourceTensor& tensor = source.tensors[change.tensor];
    add(tensor.name, name(tensor.type), change.module.empty() ? name(tensor.type) : plan.method->name, change.bytes(),
        tensor.elements());
    elements += tensor.elements();
  }
  add("all", "", "", plan.bytes(), elements);
  std::fputs(table.text().c_str(), stdout);
}

// "error of weights 0.0931 (worst: ...)"
std::string loss_text(std::vector<ModuleLoss> losses) {
  const bool has_outputs = std::ranges::any_of(losses, [](const ModuleLoss& l) { return l.outputs >= 0; });
  const auto key = [&](const ModuleLoss& l) { return has_outputs ? l.outputs : l.weights; };
  double sum = 0;
  for (const ModuleLoss& loss : losses) sum += std::max(0.0, key(loss));
  std::ranges::sort(losses, std::greater<>(), key);
  std::string text = fmt::format("relative error of {} {:.4f} on average; worst:", has_outputs ? "outputs" : "weights",
                                 sum / static_cast<double>(losses.size()));
  for (size_t i = 0; i < std::min(kWorst, losses.size()); ++i)
    text += fmt::format("{} {} {:.4f}", i == 0 ? "" : ",", losses[i].module, key(losses[i]));
  return text;
}

}  // namespace

void add_directory_flags(CLI::App& command, DirectoryFlags& o) {
  std::string about = "write a Hugging Face directory instead, its linears quantized by this method:";
  for (const HfMethod* method : hf_methods())
    about += fmt::format("{} {} ({})", about.back() == ':' ? "" : ",", method->name, method->about);
  o.method_option = command.add_option("--method", o.method, about)
                        ->check(parsed_by([](const std::string& text) { find_hf_method(text); }))
                        ->type_name("METHOD");
  const auto add = [&](CLI::Option* option) { option->needs(o.method_option); };
  add(command.add_option("--bits", o.bits, "bits of a code; gptq: 2, 3, 4 or 8")->type_name("N"));
  add(command
          .add_option(
              "--group-size", o.group,
              "inputs under a scale; -1: whole rows; default: 128, or the largest of 64 and 32 that divides the "
              "inputs of all matrices")
          ->check(CLI::Validator(check_group, "", ""))
          ->type_name("N"));
  CLI::Option* const symmetric = command.add_flag("--sym", o.symmetric, "no zero points");
  add(symmetric);
  add(command.add_flag("--asym", o.asymmetric, "zero points")->excludes(symmetric));
  add(command
          .add_option("--observer", o.observer,
                      "how the range of a group is found: the least error (mse, the default), or the extreme weights")
          ->check(CLI::IsMember({"mse", "minmax"})));
  add(command.add_flag("--act-order", o.act_order, "gptq: begin with the inputs of the greatest squares"));
  add(command.add_flag("--static-groups", o.static_groups,
                       "gptq: groups of neighbours, with scales of the weights before"));
  add(command
          .add_option("--damp-percent", o.damping,
                      "gptq: share of the Gram matrix's mean diagonal that is added to it; default: 0.01, more for few "
                      "tokens")
          ->check(CLI::Range(0.0, 1.0))
          ->type_name("X"));
  add(command.add_flag("--no-double-quant", o.no_double, "nf4, fp4: magnitudes in float32"));
  add(command
          .add_option("--alpha", o.alpha,
                      "smoothquant: how much moves from inputs to weights, 0 to 1; default: searched for each layer")
          ->check(CLI::Range(0.0, 1.0))
          ->type_name("X"));
}

void quantize_directory(const DirectoryFlags& o, const DirectoryJob& job) {
  const HfMethod& method = find_hf_method(o.method);
  refuse_unused(o, method);
  const bool needs_inputs = method.needs != NeededInputs::kNone, calibrates = !job.calibration.file.empty();
  if (needs_inputs && !calibrates && !job.dry_run)
    throw CLI::ValidationError(
        "--method", fmt::format("{} needs the inputs of a calibration text; give one with --calibrate", method.name));
  if (calibrates && !needs_inputs)
    throw CLI::ValidationError("--calibrate", fmt::format("{} does not look at inputs; leave it out", method.name));
  const MethodSettings settings = settings_of(o, method);
  const std::filesystem::path input = resolve_model(job.input);
  if (!job.dry_run) check_output_folder(job.output, input, job.force);
  std::optional<HfPlan> plan;
  WrittenModel written;
  std::unique_ptr<PartialOutput> partial;
  run_interruptible([&](const auto& check) {
    keep_on_failure(partial, [&] {
      Progress progress;
      progress.stage("reading " + job.input);
      const Checkpoint original = Checkpoint::open(input);
      if (job.resume) partial = open_partial(*job.command, original, job.output, job.force);
      Team team(job.threads > 0 ? job.threads : usable_cores());
      std::optional<RotatedCopy> rotated;
      if (o.rotate) rotated.emplace(original, job.output, partial.get(), team, progress, check);
      const ModelSource source = open_model_source(rotated ? rotated->checkpoint() : original);
      plan = plan_hf_model(source, method, settings, !o.group, o.rotate && !o.no_online_rotation);
      if (rotated)
        plan->warnings.insert(plan->warnings.begin(), rotated->warnings().begin(), rotated->warnings().end());
      if (job.dry_run) {
        progress.clear();
        return print_directory_plan(source, *plan);
      }
      std::optional<Calibration> calibration;
      FindInputs inputs;
      if (needs_inputs) {
        Calibration::Wants wants;
        if (method.needs == NeededInputs::kSample) wants = {.sample_rows = kSampleRows, .gram = false};
        EngineOptions engine;
        engine.model = rotated ? rotated->path().string() : job.input;
        engine.threads = job.threads;
        calibration.emplace(std::move(engine), job.calibration, wants, folder_of_hidden_states(job.output), progress,
                            check);
        inputs = [&](const Slot& slot) { return calibration->inputs_of(slot); };
      }
      progress.stage("quantizing tensors");
      const auto step = [&](size_t done, size_t total, const std::string& name) {
        check();
        progress.step(done, total, name);
      };
      written = write_hf_model(source, *plan, inputs, job.output, job.force, team, step, partial.get());
      if (partial) partial->finish();
    });
  });
  print_all_warnings(plan->warnings);
  print_all_warnings(written.notes);
  if (job.dry_run) return;
  std::fprintf(stderr, "wrote %s: %s, %zu matrices quantized, %.1f MB; %s\n", job.output.c_str(),
               std::string(method.name).c_str(), plan->quantized(), static_cast<double>(plan->bytes()) / 1e6,
               loss_text(std::move(written.losses)).c_str());
}

}  // namespace quire
