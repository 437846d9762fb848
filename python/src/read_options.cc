#include "read_options.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "from_python.h"
#include "quire/structured_output.h"

namespace quire::python {
namespace {

using OptionMember = std::variant<std::string EngineOptions::*, int EngineOptions::*, double EngineOptions::*,
                                  bool EngineOptions::*, size_t EngineOptions::*>;

struct EngineOption {
  std::string_view name;
  OptionMember member;
};

// All members but the enumerations, which read_choice() takes, control_vectors, adapters, which the package loads later, and
// on_load.
constexpr EngineOption kEngineOptions[] = {
    {"model", &EngineOptions::model},
    {"kernels", &EngineOptions::kernels},
    {"device", &EngineOptions::device},
    {"gpu_layers", &EngineOptions::gpu_layers},
    {"cpu_moe_layers", &EngineOptions::cpu_moe_layers},
    {"activations", &EngineOptions::activations},
    {"kv_cache_dtype", &EngineOptions::kv_cache_dtype},
    {"threads", &EngineOptions::threads},
    {"tensor_parallel_size", &EngineOptions::tensor_parallel_size},
    {"pipeline_parallel_size", &EngineOptions::pipeline_parallel_size},
    {"numa", &EngineOptions::numa},
    {"micro_batch_rows", &EngineOptions::micro_batch_rows},
    {"max_model_len", &EngineOptions::max_model_len},
    {"max_num_seqs", &EngineOptions::max_num_seqs},
    {"max_num_batched_tokens", &EngineOptions::max_num_batched_tokens},
    {"kv_cache_bytes", &EngineOptions::kv_cache_bytes},
    {"kv_cache", &EngineOptions::kv_cache},
    {"chunked_prefill", &EngineOptions::chunked_prefill},
    {"forced_tokens", &EngineOptions::forced_tokens},
    {"device_sampling", &EngineOptions::device_sampling},
    {"draft_model", &EngineOptions::draft_model},
    {"eagle_head", &EngineOptions::eagle_head},
    {"medusa_heads", &EngineOptions::medusa_heads},
    {"speculative_corpus", &EngineOptions::speculative_corpus},
    {"draft_vocabulary", &EngineOptions::draft_vocabulary},
    {"early_exit_layers", &EngineOptions::early_exit_layers},
    {"num_speculative_tokens", &EngineOptions::num_speculative_tokens},
    {"speculate_always", &EngineOptions::speculate_always},
    {"tpot_target", &EngineOptions::tpot_target},
    {"ttft_target", &EngineOptions::ttft_target},
    {"prefix_cache", &EngineOptions::prefix_cache},
    {"memory_bytes", &EngineOptions::memory_bytes},
    {"reserved_bytes", &EngineOptions::reserved_bytes},
    {"constraint_bytes", &EngineOptions::constraint_bytes},
    {"host_cache_bytes", &EngineOptions::host_cache_bytes},
    {"cache_dir", &EngineOptions::cache_dir},
    {"cache_bytes", &EngineOptions::cache_bytes},
    {"shared_cache", &EngineOptions::shared_cache},
    {"adapter_bytes", &EngineOptions::adapter_bytes},
    {"max_adapters", &EngineOptions::max_adapters},
    {"max_adapter_rank", &EngineOptions::max_adapter_rank},
    {"control_first_layer", &EngineOptions::control_first_layer},
    {"control_last_layer", &EngineOptions::control_last_layer},
    {"executor_process", &EngineOptions::executor_process},
    {"record", &EngineOptions::record},
    {"trace_out", &EngineOptions::trace_out},
    {"trace_bytes", &EngineOptions::trace_bytes},
    {"expert_bytes", &EngineOptions::expert_bytes},
    {"pack_cache", &EngineOptions::pack_cache},
    {"tuning_file", &EngineOptions::tuning_file},
    {"chat_template", &EngineOptions::chat_template},
    {"chat_template_kwargs", &EngineOptions::chat_template_kwargs},
};

// The index of a name among `names`.
size_t index_of(nb::handle value, std::string_view option, std::span<const std::string_view> names) {
  const std::string text = to_text(value, option);
  const auto found = std::ranges::find(names, text);
  if (found != names.end()) return static_cast<size_t>(found - names.begin());
  std::string all;
  for (const std::string_view name : names) all += (all.empty() ? "" : ", ") + std::string(name);
  throw nb::value_error((std::string(option) + " must be one of " + all + ", not " + text).c_str());
}

bool read_choice(EngineOptions& options, std::string_view name, nb::handle value) {
  static constexpr std::string_view kSchedulers[] = {"continuous", "static"}, kAcceptances[] = {"exact", "rejection"},
                                    kTuneModes[] = {"off", "auto", "force"}, kDetails[] = {"steps", "operations"};
  if (name == "scheduler") {
    options.scheduler = SchedulerKind(index_of(value, name, kSchedulers));
  } else if (name == "speculative") {
    std::vector<std::string_view> names{"off", "auto"};
    names.insert(names.end(), kDrafters.begin(), kDrafters.end());
    options.speculative = Speculation(index_of(value, name, names));
  } else if (name == "speculative_acceptance") {
    options.speculative_acceptance = DraftAcceptance(index_of(value, name, kAcceptances));
  } else if (name == "tune") {
    options.tune = TuneMode(index_of(value, name, kTuneModes));
  } else if (name == "trace_detail") {
    options.trace_detail = TraceDetail(index_of(value, name, kDetails));
  } else {
    return false;
  }
  return true;
}

// (path, scale), or a path.
ControlVectorOption read_control_vector(nb::handle value, std::string_view name) {
  if (PyUnicode_Check(value.ptr())) return {.path = to_text(value, name)};
  if (!PyTuple_Check(value.ptr()) || PyTuple_Size(value.ptr()) != 2)
    refuse_type(name, "a path or (path, scale)", value);
  const nb::tuple pair = nb::borrow<nb::tuple>(value);
  return {.path = to_text(pair[0], name), .scale = to_number(pair[1], name)};
}

template <class T>
T read_value(nb::handle value, std::string_view name) {
  if constexpr (std::is_same_v<T, bool>) {
    return to_bool(value, name);
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(to_number(value, name));
  } else if constexpr (std::is_same_v<T, std::string>) {
    return to_text(value, name);
  } else {
    return to_integer<T>(value, name);
  }
}

template <class Object, class Member>
void set(Object& object, const Member& member, nb::handle value, std::string_view name) {
  std::visit([&](auto place) { object.*place = read_value<std::decay_t<decltype(object.*place)>>(value, name); },
             member);
}

[[noreturn]] void refuse_name(std::string_view what, std::string_view name) {
  throw nb::type_error(("no " + std::string(what) + " is called " + std::string(name)).c_str());
}

// What kSamplingParameters has no row for.
bool read_other(SamplingParams& sampling, std::string_view name, nb::handle value) {
  const auto ids = [&] { return to_list(value, name, to_integer<TokenId>); };
  const auto texts = [&] { return to_list(value, name, to_text); };
  if (name == "logit_bias") {
    if (!PyDict_Check(value.ptr())) refuse_type(name, "a dict", value);
    for (const auto [id, bias] : nb::borrow<nb::dict>(value)) {
      sampling.logit_bias.emplace_back(to_integer<TokenId>(id, "a key of logit_bias"),
                                       static_cast<float>(to_number(bias, "a value of logit_bias")));
    }
  } else if (name == "allowed_token_ids") {
    sampling.allowed_token_ids = ids();
  } else if (name == "bad_words") {
    sampling.bad_words = texts();
  } else if (name == "dry_sequence_breakers") {
    sampling.dry_sequence_breakers = texts();
  } else if (name == "seed") {
    sampling.seed = to_integer<uint64_t>(value, name);
  } else if (name == "max_tokens") {
    sampling.max_tokens = to_integer<int>(value, name);
  } else if (name == "stop") {
    sampling.stop = texts();
  } else if (name == "stop_token_ids") {
    sampling.stop_token_ids = ids();
  } else if (name == "logprobs") {
    sampling.logprobs = to_integer<int>(value, name);
  } else if (name == "prompt_logprobs") {
    sampling.prompt_logprobs = to_integer<int>(value, name);
  } else {
    return false;
  }
  return true;
}

}  // namespace

EngineOptions read_engine_options(const nb::dict& values) {
  EngineOptions options;
  for (const auto [key, value] : values) {
    const std::string name = to_text(key, "the name of an option");
    if (const auto row = std::ranges::find(kEngineOptions, name, &EngineOption::name);
        row != std::end(kEngineOptions)) {
      set(options, row->member, value, name);
    } else if (name == "control_vectors") {
      options.control_vectors = to_list(value, name, read_control_vector);
    } else if (!read_choice(options, name, value)) {
      refuse_name("option of the engine", name);
    }
  }
  return options;
}

SamplingParams read_sampling(const nb::dict& values) {
  SamplingParams sampling;
  for (const auto [key, value] : values) {
    const std::string name = to_text(key, "the name of a sampling parameter");
    const auto row = std::ranges::find(kSamplingParameters, name, &SamplingParameter::name);
    if (row != std::end(kSamplingParameters)) {
      set(sampling, row->member, value, name);
    } else if (!read_other(sampling, name, value)) {
      refuse_name("sampling parameter", name);
    }
  }
  return sampling;
}

ConstraintSource read_constraint(const nb::dict& values) {
  using Kind = ConstraintSource::Kind;
  static constexpr std::pair<std::string_view, Kind> kKinds[] = {{"json_schema", Kind::kJsonSchema},
                                                                 {"json_object", Kind::kJsonObject},
                                                                 {"regex", Kind::kRegex},
                                                                 {"choice", Kind::kChoice},
                                                                 {"grammar", Kind::kGrammar}};
  ConstraintSource source;
  for (const auto [key, value] : values) {
    const std::string name = to_text(key, "a key");
    if (name == "kind") {
      const std::string kind = to_text(value, name);
      const auto row = std::ranges::find(kKinds, kind, &std::pair<std::string_view, Kind>::first);
      if (row == std::end(kKinds)) refuse_name("kind of structured output", kind);
      source.kind = row->second;
    } else if (name == "text") {
      source.text = to_text(value, name);
    } else if (name == "choices") {
      source.choices = to_list(value, "choice", to_text);
    } else if (name == "label") {
      source.label = to_text(value, name);
    } else {
      refuse_name("part of a structured output", name);
    }
  }
  if (source.kind == Kind::kJsonSchema) return closed_json_schema(source.text, source.label);
  return source;
}

nb::list sampling_parameters() {
  nb::list rows;
  const SamplingParams defaults;
  for (const SamplingParameter& row : kSamplingParameters) {
    nb::object value;
    std::visit([&](auto place) { value = nb::cast(defaults.*place); }, row.member);
    rows.append(
        nb::make_tuple(nb::str(row.name.data(), row.name.size()), value, nb::str(row.about.data(), row.about.size())));
  }
  return rows;
}

}  // namespace quire::python
