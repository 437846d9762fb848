#include "engine/remote/wire_results.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "engine/step/wire.h"

namespace quire {

Json to_json(const CachePlace& place) {
  return {{"of_state", place.of_state},
          {"group", place.group},
          {"index", place.index},
          {"offset", place.offset},
          {"size", place.size}};
}

CachePlace read_place(const JsonField& json) {
  const auto number = [&](const char* name) {
    return static_cast<int>(json.at(name).integer(0, std::numeric_limits<int32_t>::max()));
  };
  return {.of_state = json.get<bool>("of_state"),
          .group = number("group"),
          .index = number("index"),
          .offset = json.get<uint64_t>("offset"),
          .size = json.get<uint64_t>("size")};
}

void write_output(const ForwardOutput& output, Message& message) {
  Json pooled = Json::array();
  for (const std::vector<float>& vector : output.pooled) pooled.push_back(bits_of(vector));
  const ExpertReads& reads = output.expert_reads;
  message.json = {{"expert_bytes", output.expert_bytes},
                  {"logits_bytes", output.logits_bytes},
                  {"expert_reads",
                   {{"hits", reads.hits},
                    {"reads", reads.reads},
                    {"bytes", reads.bytes},
                    {"read_seconds", reads.read_seconds},
                    {"wait_seconds", reads.wait_seconds}}},
                  {"pooled", std::move(pooled)}};
  message.bytes = std::as_bytes(output.logits);
}

void read_output(const Message& message, ForwardOutput& output, std::vector<float>& logits) {
  const JsonField json(message.json, "a reply");
  output.expert_bytes = json.get<uint64_t>("expert_bytes");
  output.logits_bytes = json.get<uint64_t>("logits_bytes");
  const JsonField reads = json.at("expert_reads");
  output.expert_reads = {.hits = reads.get<uint64_t>("hits"),
                         .reads = reads.get<uint64_t>("reads"),
                         .bytes = reads.get<uint64_t>("bytes"),
                         .read_seconds = reads.get<double>("read_seconds"),
                         .wait_seconds = reads.get<double>("wait_seconds")};
  output.pooled.clear();
  for (const JsonField& vector : json.at("pooled").elements()) output.pooled.push_back(read_bits(vector));
  logits.resize(message.bytes.size() / sizeof(float));
  if (!logits.empty()) std::memcpy(logits.data(), message.bytes.data(), message.bytes.size());
  output.logits = logits;
}

}  // namespace quire
