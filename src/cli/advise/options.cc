#include "cli/advise/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string_view>
#include <utility>

#include "engine/dtype_names.h"
#include "engine/option_names.h"

namespace quire {
namespace {

constexpr const char* kRestart = "restart";
constexpr AdviceValue kPlain{}, kLossy{.lossy = true}, kBaseline{.baseline = true};

AdviceTopic speculation_topic() {
  AdviceTopic topic{.what = "speculation", .takes = kRestart, .choices = {}, .covered = 2};
  for (const Speculation kind : {Speculation::kNgram, Speculation::kAuto, Speculation::kLookahead})
    topic.choices.push_back({std::string(name(kind)), fmt::format("--speculative {}", name(kind)), kPlain,
                             [kind](AdviceSettings& s) { s.engine.speculative = kind; }});
  return topic;
}

AdviceTopic activations_topic(Activations in_force) {
  AdviceTopic topic{.what = "activations", .takes = kRestart, .choices = {}, .covered = 1};
  for (const Activations type : {Activations::kInt8, Activations::kInt8x2, Activations::kBf16}) {
    if (type == in_force) continue;
    topic.choices.push_back({std::string(name(type)), fmt::format("--activations {}", name(type)), kLossy,
                             [type](AdviceSettings& s) { s.engine.activations = name(type); }});
  }
  return topic;
}

AdviceTopic kv_type_topic(KvType in_force) {
  AdviceTopic topic{.what = "KV cache type", .takes = kRestart, .choices = {}, .covered = 1};
  for (const KvType type : {KvType::kInt8, KvType::kFp8, KvType::kInt4}) {
    if (type == in_force) continue;
    topic.choices.push_back({std::string(name(type)), fmt::format("--kv-cache-dtype {}", name(type)), kLossy,
                             [type](AdviceSettings& s) { s.engine.kv_cache_dtype = name(type); }});
  }
  return topic;
}

AdviceTopic thread_topic(int in_force) {
  AdviceTopic topic{.what = "threads", .takes = kRestart, .choices = {}, .covered = 1};
  std::vector<int> counts;
  for (const int count : {in_force / 2, in_force - 1}) {
    if (count >= 1 && count < in_force && std::ranges::find(counts, count) == counts.end()) counts.push_back(count);
  }
  for (const int count : counts)
    topic.choices.push_back({fmt::format("{}", count), fmt::format("-t {}", count), kPlain,
                             [count](AdviceSettings& s) { s.engine.threads = count; }});
  if (counts.empty()) topic.not_tried = "there is one thread only";
  return topic;
}

// Steps have at least a row for each sequence.
AdviceTopic chunk_topic(const EngineOptions& engine) {
  AdviceTopic topic{.what = "chunked prefill", .takes = kRestart, .choices = {}, .covered = 1};
  for (const int tokens : {1024, 2048, 256, 128}) {
    if (tokens == engine.max_num_batched_tokens || tokens < engine.max_num_seqs) continue;
    topic.choices.push_back({fmt::format("{} tokens", tokens), fmt::format("--max-num-batched-tokens {}", tokens),
                             kPlain, [tokens](AdviceSettings& s) { s.engine.max_num_batched_tokens = tokens; }});
  }
  topic.choices.push_back(
      {"off", "--no-chunked-prefill", kPlain, [](AdviceSettings& s) { s.engine.chunked_prefill = false; }});
  return topic;
}

AdviceTopic step_time_topic(const AdviceBasis& basis) {
  AdviceTopic topic{.what = "longest step", .takes = kRestart, .choices = {}};
  std::vector<double> targets{0.2, 1};
  if (basis.level.tpot) targets.insert(targets.begin(), *basis.level.tpot);
  for (const double target : targets) {
    if (target == basis.engine.tpot_target || target < kMinTpotTarget || target > kMaxTpotTarget) continue;
    topic.choices.push_back({fmt::format("{:g} s", target), fmt::format("--tpot-target {:g}", target), kPlain,
                             [target](AdviceSettings& s) { s.engine.tpot_target = target; }});
  }
  return topic;
}

// Fewer sequences at once lose throughput, but each has more of it: of use within a service level only.
AdviceTopic batching_topic(const AdviceBasis& basis) {
  AdviceTopic topic{.what = "batching", .takes = kRestart, .choices = {}};
  const auto add = [&](int count, AdviceValue value) {
    topic.choices.push_back({fmt::format("{} at once", count), fmt::format("--max-num-seqs {}", count), value,
                             [count](AdviceSettings& s) { s.engine.max_num_seqs = count; }});
  };
  if (basis.concurrency == 1) topic.not_tried = "the workload has one request at a time";
  if (basis.concurrency > 1) add(1, kBaseline);
  if (basis.level.given()) {
    for (const int count : {basis.concurrency / 2, basis.concurrency / 4}) {
      if (count > 1) add(count, kPlain);
    }
  }
  return topic;
}

std::vector<AdviceTopic> on_by_default(const AdviceBasis& basis) {
  AdviceTopic prefixes{.what = "prefix cache", .takes = kRestart, .choices = {}, .covered = 1};
  prefixes.choices.push_back(
      {"off", "--no-prefix-cache", kPlain, [](AdviceSettings& s) { s.engine.prefix_cache = false; }});
  AdviceTopic cache{.what = "KV cache", .takes = "", .choices = {}};
  cache.choices.push_back({"off", "--no-kv-cache", kBaseline, [](AdviceSettings& s) { s.engine.kv_cache = false; }});
  AdviceTopic scheduler{.what = "continuous batching", .takes = "", .choices = {}};
  scheduler.choices.push_back({"static", "--scheduler static", kBaseline,
                               [](AdviceSettings& s) { s.engine.scheduler = SchedulerKind::kStatic; }});
  AdviceTopic pages{.what = "huge pages", .takes = "root", .choices = {}, .not_tried = basis.huge_pages};
  if (basis.huge_pages.empty())
    pages.choices.push_back({"off", "", kBaseline, [](AdviceSettings& s) { s.huge_pages = false; }});
  return {prefixes, batching_topic(basis), cache, scheduler, pages};
}

// For a POSIX shell.
std::string shell_word(const std::string& text) {
  constexpr std::string_view kSpecial = " \t\n'\"\\$&|;<>()*?[]#~`!{}";
  if (!text.empty() && text.find_first_of(kSpecial) == text.npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

const AdviceChoice* chosen(const AdviceTopic& topic, size_t value) {
  return value > 0 ? &topic.choices[value - 1] : nullptr;
}

}  // namespace

std::vector<AdviceTopic> advice_topics(const AdviceBasis& basis) {
  std::vector<AdviceTopic> topics{speculation_topic(),       activations_topic(basis.activations),
                                  kv_type_topic(basis.kv),   thread_topic(basis.threads),
                                  chunk_topic(basis.engine), step_time_topic(basis)};
  std::ranges::move(on_by_default(basis), std::back_inserter(topics));
  return topics;
}

std::vector<AdviceOption> advice_options(const std::vector<AdviceTopic>& topics) {
  std::vector<AdviceOption> options;
  for (const AdviceTopic& topic : topics) {
    AdviceOption& option = options.emplace_back();
    for (const AdviceChoice& choice : topic.choices) option.values.push_back(choice.value);
  }
  return options;
}

AdviceSettings advice_settings(const EngineOptions& engine, const std::vector<AdviceTopic>& topics,
                               const AdviceConfiguration& configuration) {
  AdviceSettings settings{.engine = engine};
  for (size_t i = 0; i < topics.size(); ++i) {
    if (const AdviceChoice* choice = chosen(topics[i], configuration[i])) choice->apply(settings);
  }
  return settings;
}

std::string serve_command(const EngineOptions& engine, const std::vector<AdviceTopic>& topics,
                          const AdviceConfiguration& configuration) {
  const EngineOptions usual;
  std::string command = "quire serve -m " + shell_word(engine.model);
  // A flag of the configuration replaces the one that was given.
  std::string flags;
  for (size_t i = 0; i < topics.size(); ++i) {
    if (const AdviceChoice* choice = chosen(topics[i], configuration[i])) flags += " " + choice->flag;
  }
  const auto given = [&](std::string_view flag, const std::string& value, bool changed) {
    if (changed && flags.find(fmt::format(" {} ", flag)) == std::string::npos)
      command += fmt::format(" {} {}", flag, value);
  };
  given("-t", fmt::format("{}", engine.threads), engine.threads != usual.threads);
  given("--kernels", engine.kernels, engine.kernels != usual.kernels);
  given("--activations", engine.activations, engine.activations != usual.activations);
  given("--kv-cache-dtype", engine.kv_cache_dtype, engine.kv_cache_dtype != usual.kv_cache_dtype);
  given("--max-num-seqs", fmt::format("{}", engine.max_num_seqs), engine.max_num_seqs != usual.max_num_seqs);
  given("--max-num-batched-tokens", fmt::format("{}", engine.max_num_batched_tokens),
        engine.max_num_batched_tokens != usual.max_num_batched_tokens);
  return command + flags;
}

std::string why_no_huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string mode;
  if (!std::getline(file, mode)) return "this system has no transparent huge pages";
  if (mode.find("[never]") == mode.npos) return "";
  return "the system gives none; as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
}

}  // namespace quire
