#include "cli/advise/prompts.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "cli/bench/prompts.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

constexpr size_t kLeastText = 256;                 // tokens
constexpr size_t kLargestText = size_t{64} << 20;  // bytes
// A prime, so that the passages of consecutive requests begin far apart and do not repeat before all tokens were a start.
constexpr uint64_t kStride = 7919;

constexpr std::string_view kQuestions[] = {
    "What is the main idea of the following text, and what would you ask its author?",
    "According to the documents above, what is important about the following?",
    "Answer with one word only, positive, negative or neutral: how does the following text sound?"};

}  // namespace

std::string built_in_text() {
  std::string text;
  for (const BenchPrompt& prompt : copy_prompts()) {
    const size_t end_of_task = prompt.text.find("\n\n");
    text += end_of_task == prompt.text.npos ? prompt.text : prompt.text.substr(end_of_task + 2);
    text += "\n\n";
  }
  return text;
}

AdvicePrompts::AdvicePrompts(const Engine& engine, const AdviceWorkload& workload)
    : whole_(workload.text_file.empty() ? built_in_text() : read_text_file(workload.text_file, kLargestText)),
      ids_(engine.tokenizer().encode(whole_, {.add_special = false, .parse_special = false})) {
  if (ids_.size() < kLeastText)
    throw invalid("{} has only {} tokens; prompts need a text of at least {}", workload.text_file, ids_.size(),
                  kLeastText);
}

std::string AdvicePrompts::passage(const Engine& engine, uint64_t start, int count) const {
  TokenIds ids;
  for (int i = 0; i < count; ++i) ids.push_back(ids_[(start + static_cast<uint64_t>(i)) % ids_.size()]);
  return engine.decode(ids);
}

std::string AdvicePrompts::content(const Engine& engine, const AdviceWorkload& workload, const PlannedRequest& planned,
                                   uint64_t index) const {
  int left = planned.input_tokens;
  std::string text;
  const auto take = [&](uint64_t start, int count) {
    count = std::min(count, left);
    if (count > 0) text += passage(engine, start, count) + "\n\n";
    left -= count;
  };
  take(0, workload.shared_prefix);
  for (const int64_t block : planned.blocks) take(static_cast<uint64_t>(block) * kStride, workload.block_tokens);
  text += kQuestions[static_cast<size_t>(workload.kind)];
  text += "\n\n";
  take((index + 1) * kStride, left);
  return text;
}

std::vector<ScheduledRequest> AdvicePrompts::requests(const Engine& engine, const AdviceWorkload& workload,
                                                      uint64_t run) const {
  std::vector<ScheduledRequest> all;
  for (size_t i = 0; i < workload.requests.size(); ++i) {
    const PlannedRequest& planned = workload.requests[i];
    const uint64_t index = run * workload.requests.size() + i;
    const std::string text = content(engine, workload, planned, index);
    ScheduledRequest& scheduled = all.emplace_back();
    if (engine.has_chat_template()) {
      ChatInput input;
      input.messages.push_back({{"role", "user"}, {"content", text}});
      scheduled.request.prompt = engine.encode_chat(std::move(input));
    } else {
      scheduled.request.prompt = engine.encode(text);
    }
    scheduled.request.sampling.temperature = workload.temperature;
    scheduled.request.sampling.seed = index;
    scheduled.request.sampling.max_tokens = planned.output_tokens;
  }
  return all;
}

TokenIds AdvicePrompts::text(const Engine& engine, size_t most) const {
  TokenIds ids = engine.encode(whole_);
  ids.resize(std::min(ids.size(), most));
  return ids;
}

}  // namespace quire
