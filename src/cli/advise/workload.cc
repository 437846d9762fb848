#include "cli/advise/workload.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "base/error.h"
#include "base/text/nearest.h"
#include "json/field.h"
#include "json/known_fields.h"

namespace quire {
namespace {

constexpr int kMostRequests = 4096, kMostConcurrency = 1024, kMostTokens = 1 << 20;
constexpr int kLeastPrompt = 8, kLeastAnswer = 4;
constexpr size_t kLargestFile = size_t{1} << 20;

// The fields of a workload, with the defaults of its kind. Lengths in tokens.
struct WorkloadFields {
  int requests, concurrency, shared_prefix, prompt, answer;
};

// Chat: a system prompt, a message of a paragraph, and an answer of one. RAG: some pages of documents. Classify: a
// guideline, a sentence or two, a label.
constexpr WorkloadFields kKindFields[] = {{16, 4, 64, 128, 96}, {8, 4, 1024, 64, 64}, {64, 16, 96, 48, 4}};

const std::vector<std::string>& field_names() {
  static const std::vector<std::string> names = {
      "kind",  "requests",          "concurrency",       "shared_prefix_tokens", "prompt_tokens", "answer_tokens",
      "trace", "max_prompt_tokens", "max_answer_tokens", "temperature",          "text"};
  return names;
}

AdviceKind read_kind(const JsonField& file) {
  const auto kind = file.find("kind");
  if (!kind) return AdviceKind::kChat;
  const auto* const found = std::ranges::find(kAdviceKinds, std::string_view(kind->string()));
  if (found == std::end(kAdviceKinds))
    throw kind->error("must be one of {}, not {}", fmt::join(kAdviceKinds, ", "), kind->string());
  return static_cast<AdviceKind>(found - std::begin(kAdviceKinds));
}

int read_count(const JsonField& file, std::string_view key, int low, int high, int fallback) {
  const auto value = file.find(key);
  return value ? static_cast<int>(value->integer(low, high)) : fallback;
}

// A path in a workload's file is relative to that file.
std::string read_path(const JsonField& file, std::string_view key, const std::string& workload_file) {
  const auto value = file.find(key);
  if (!value) return "";
  if (value->string().empty()) throw value->error("must be a file");
  return (std::filesystem::path(workload_file).parent_path() / value->string()).string();
}

AdviceWorkload of_kind(AdviceKind kind, const WorkloadFields& fields) {
  AdviceWorkload workload{.name = std::string(kAdviceKinds[static_cast<size_t>(kind)]),
                          .kind = kind,
                          .concurrency = fields.concurrency,
                          .shared_prefix = fields.shared_prefix};
  workload.requests.assign(static_cast<size_t>(fields.requests),
                           {0, fields.shared_prefix + fields.prompt, fields.answer, {}});
  return workload;
}

// Lengths and shared blocks of a trace; a closed loop replaces its times.
void take_trace(const JsonField& file, const std::string& trace, int requests, AdviceWorkload& workload) {
  for (const char* other : {"prompt_tokens", "answer_tokens"}) {
    if (file.has(other)) throw file.at(other).error("excludes trace, which has the lengths");
  }
  Workload planned = plan_workload({.trace = trace,
                                    .max_input_tokens = read_count(file, "max_prompt_tokens", 1, kMostTokens, 2048),
                                    .max_output_tokens = read_count(file, "max_answer_tokens", 1, kMostTokens, 256),
                                    .shared_prefix = workload.shared_prefix});
  planned.requests.resize(std::min(planned.requests.size(), static_cast<size_t>(requests)));
  workload.block_tokens = planned.block_tokens;
  workload.requests = std::move(planned.requests);
}

int scaled_length(int length, double scale, int least) {
  return std::max(std::min(length, least), static_cast<int>(std::lround(length * scale)));
}

}  // namespace

int AdviceWorkload::longest() const {
  int most = 0;
  for (const PlannedRequest& request : requests) most = std::max(most, request.input_tokens + request.output_tokens);
  return most;
}

double AdviceWorkload::mean_prompt() const {
  const auto add = [](double sum, const PlannedRequest& request) { return sum + request.input_tokens; };
  return std::accumulate(requests.begin(), requests.end(), 0.0, add) / static_cast<double>(requests.size());
}

double AdviceWorkload::mean_answer() const {
  const auto add = [](double sum, const PlannedRequest& request) { return sum + request.output_tokens; };
  return std::accumulate(requests.begin(), requests.end(), 0.0, add) / static_cast<double>(requests.size());
}

AdviceWorkload read_advice_workload(const std::string& name_or_file) {
  for (size_t i = 0; i < std::size(kAdviceKinds); ++i) {
    if (name_or_file == kAdviceKinds[i]) return of_kind(static_cast<AdviceKind>(i), kKindFields[i]);
  }
  if (!std::filesystem::exists(name_or_file))
    throw not_found("--workload {}: there is no such file, and the built-in workloads are {}", name_or_file,
                    fmt::join(kAdviceKinds, ", "));
  const JsonField file = JsonField::read(name_or_file, kLargestFile).object();
  refuse_unknown_fields(file, "a workload", field_names());
  const AdviceKind kind = read_kind(file);
  const WorkloadFields usual = kKindFields[static_cast<size_t>(kind)];
  WorkloadFields fields{.requests = read_count(file, "requests", 1, kMostRequests, usual.requests),
                        .concurrency = read_count(file, "concurrency", 1, kMostConcurrency, usual.concurrency),
                        .shared_prefix = read_count(file, "shared_prefix_tokens", 0, kMostTokens, usual.shared_prefix),
                        .prompt = read_count(file, "prompt_tokens", 1, kMostTokens, usual.prompt),
                        .answer = read_count(file, "answer_tokens", 1, kMostTokens, usual.answer)};
  const std::string trace = read_path(file, "trace", name_or_file);
  if (trace.empty()) {
    for (const char* other : {"max_prompt_tokens", "max_answer_tokens"}) {
      if (file.has(other)) throw file.at(other).error("is for traces; use prompt_tokens and answer_tokens");
    }
  } else {
    fields.shared_prefix = read_count(file, "shared_prefix_tokens", 0, kMostTokens, 0);
  }
  AdviceWorkload workload = of_kind(kind, fields);
  workload.name = name_or_file;
  workload.text_file = read_path(file, "text", name_or_file);
  if (const auto temperature = file.find("temperature"))
    workload.temperature = static_cast<float>(temperature->number(0, 100));
  if (!trace.empty()) take_trace(file, trace, fields.requests, workload);
  workload.concurrency = std::min(workload.concurrency, static_cast<int>(workload.requests.size()));
  return workload;
}

AdviceWorkload scaled(AdviceWorkload workload, double scale) {
  workload.scale *= scale;
  workload.shared_prefix = scaled_length(workload.shared_prefix, scale, 0);
  workload.block_tokens = scaled_length(workload.block_tokens, scale, 1);
  for (PlannedRequest& request : workload.requests) {
    request.input_tokens = scaled_length(request.input_tokens, scale, kLeastPrompt);
    request.output_tokens = scaled_length(request.output_tokens, scale, kLeastAnswer);
  }
  return workload;
}

}  // namespace quire
