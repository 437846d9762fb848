#include "engine/remote/wire_results.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "engine/step/wire.h"

namespace quire {

Json to_json(const CachePlace& place) {
  return {{"of_state", place.of_state}, {"index", place.index}, {"offset", place.offset}, {"size", place.size}};
}

CachePlace read_place(const JsonField& json) {
  return {.of_state = json.get<bool>("of_state"),
          .index = static_cast<int>(json.at("index").integer(0, std::numeric_limits<int32_t>::max())),
          .offset = json.get<uint64_t>("offset"),
          .size = json.get<uint64_t>("size")};
}

void write_output(const ForwardOutput& output, Message& message) {
  Json pooled = Json::array();
  for (const std::vector<float>& vector : output.pooled) pooled.push_back(bits_of(vector));
  message.json = {{"expert_bytes", output.expert_bytes}, {"pooled", std::move(pooled)}};
  message.bytes = std::as_bytes(output.logits);
}

void read_output(const Message& message, ForwardOutput& output, std::vector<float>& logits) {
  const JsonField json(message.json, "a reply");
  output.expert_bytes = json.get<uint64_t>("expert_bytes");
  output.pooled.clear();
  for (const JsonField& vector : json.at("pooled").elements()) output.pooled.push_back(read_bits(vector));
  logits.resize(message.bytes.size() / sizeof(float));
  if (!logits.empty()) std::memcpy(logits.data(), message.bytes.data(), message.bytes.size());
  output.logits = logits;
}

}  // namespace quire
