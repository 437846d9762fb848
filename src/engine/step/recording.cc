#include "engine/step/recording.h"

#include <spdlog/spdlog.h>
#include <xxhash.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/text/quote.h"
#include "json/field.h"

namespace quire {
namespace {

constexpr int kVersion = 3;
constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

Json as_json(const RecordingHeader& h) {
  return {{"quire_recording", kVersion},
          {"model", h.model},
          {"identity", h.identity},
          {"kernels", h.kernels},
          {"activations", h.activations},
          {"kv_cache_dtype", h.kv_cache_dtype},
          {"units", h.units},
          {"states", h.states},
          {"max_rows", h.limits.max_rows},
          {"max_logits", h.limits.max_logits},
          {"max_positions", h.limits.max_positions},
          {"max_drafted", h.limits.max_drafted},
          {"max_hidden", h.limits.max_hidden}};
}

RecordingHeader read_header(const JsonField& json) {
  if (!json.has("quire_recording")) throw json.error("not a recording of Quire; make one with --record");
  if (json.get<int32_t>("quire_recording") != kVersion)
    throw json.error("a recording of version {}, but this Quire reads version {}", json.get<int32_t>("quire_recording"),
                     kVersion);
  const auto count = [&](const char* key, int64_t low) { return static_cast<int>(json.at(key).integer(low, kMost)); };
  return {.model = json.get<std::string>("model"),
          .identity = json.get<std::string>("identity"),
          .kernels = json.get<std::string>("kernels"),
          .activations = json.get<std::string>("activations"),
          .kv_cache_dtype = json.get<std::string>("kv_cache_dtype"),
          .units = count("units", 1),
          .states = count("states", 0),
          .limits = {.max_rows = count("max_rows", 1),
                     .max_logits = count("max_logits", 1),
                     .max_positions = count("max_positions", 1),
                     .max_hidden = json.has("max_hidden") ? count("max_hidden", 0) : 0,
                     .max_drafted = count("max_drafted", 0)}};
}

constexpr size_t kLongestHeader = size_t{1} << 20, kLongestLine = size_t{64} << 20;

}  // namespace

std::string hash_of(std::span<const float> logits) {
  const XXH128_hash_t hash = XXH3_128bits(logits.data(), logits.size_bytes());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

RecordingExecutor::RecordingExecutor(Executor& executor, const std::string& path, const RecordingHeader& header)
    : executor_(executor), path_(path), file_(path, std::ios::binary) {
  file_ << as_json(header).dump() << std::endl;
  if (!file_) throw no_resource("cannot write the recording {}", quote(path));
}

RecordingExecutor::~RecordingExecutor() {
  if (file_.is_open()) file_ << Json({{"steps", steps_}}).dump() << std::endl;
}

void RecordingExecutor::keep(const CacheChanges& changes) {
  if (!file_.is_open()) return;
  changes_.advances.insert(changes_.advances.end(), changes.advances.begin(), changes.advances.end());
  changes_.copies.insert(changes_.copies.end(), changes.copies.begin(), changes.copies.end());
}

void RecordingExecutor::commit(const CacheChanges& changes) {
  keep(changes);
  executor_.commit(changes);
}

void RecordingExecutor::launch(const ForwardInput& input) {
  keep(input.changes);
  launched_ = &input;
  executor_.launch(input);
}

const ForwardOutput& RecordingExecutor::wait() {
  const ForwardOutput& output = executor_.wait();
  if (launched_->by_drafter || !file_.is_open()) return output;
  step_ = to_json(*launched_);
  step_.update(to_json(changes_));
  changes_.clear();
  logits_.clear();
  const auto wanted = static_cast<size_t>(std::ranges::count_if(launched_->rows, &Row::wants_logits));
  for (size_t row = 0; row < wanted; ++row) {
    const size_t columns = output.logits.size() / wanted;
    logits_.push_back(hash_of(output.logits.subspan(row * columns, columns)));
  }
  return output;
}

void RecordingExecutor::end(std::span<const RecordedSample> sampled) {
  if (!file_.is_open()) return;
  Json step = std::move(step_);
  step["logits"] = logits_;
  step["sampled"] = Json::array();
  for (const RecordedSample& sample : sampled)
    step["sampled"].push_back({{"sequence", sample.sequence}, {"tokens", sample.tokens}});
  step["step"] = ++steps_;
  file_ << step.dump() << std::endl;  // flushed: it should end where a crash began
  if (file_) return;
  spdlog::warn("the recording {} ends here: it cannot be written", quote(path_));
  file_.close();
}

RecordingReader::RecordingReader(const std::string& path) : path_(path), file_(path, path) {
  std::string line;
  if (!file_.next(line, kLongestHeader)) throw not_found("cannot read the recording {}: it is empty", quote(path));
  header_ = read_header(JsonField::parse(line, fmt::format("{}:{}", path_, file_.number())));
}

std::optional<RecordedStep> RecordingReader::next() {
  std::string line;
  if (!file_.next(line, kLongestLine)) return std::nullopt;
  const auto json = JsonField::parse(line, fmt::format("{}:{}", path_, file_.number()));
  if (is_complete_) throw json.error("follows the end of the recording; it was written by something else");
  if (json.has("steps")) {
    if (json.get<int64_t>("steps") != steps_)
      throw json.error("the recording has {} steps, but {} were written", steps_, json.get<int64_t>("steps"));
    is_complete_ = true;
    return next();
  }
  if (json.get<int64_t>("step") != ++steps_)
    throw json.error("expected step {}, found {}", steps_, json.get<int64_t>("step"));
  RecordedStep step;
  step.forward = read_forward(json);
  if (step.forward.input.sequences.size() != step.forward.input.spans.size())
    throw json.error("spans without a sequence");
  step.logits = json.get<std::vector<std::string>>("logits");
  for (const JsonField& sampled : json.at("sampled").elements()) {
    step.sampled.push_back(
        {SequenceId{sampled.get<uint64_t>("sequence")}, sampled.get<std::vector<int32_t>>("tokens")});
  }
  return step;
}

}  // namespace quire
