// /v1/embeddings: one vector for each text.
#include <bit>
#include <cstdint>

#include "base/working_memory.h"
#include "server/api/definition.h"
#include "server/api/request/field_readers.h"
#include "server/api/request/prompts.h"

namespace quire {
namespace {

static_assert(std::endian::native == std::endian::little, "base64 encodes the floats as they are in memory");

std::string base64(std::string_view bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k) {
      three = three << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    }
    for (size_t k = 0; k < 4; ++k) out += i + k <= bytes.size() ? kDigits[three >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

class EmbeddingsBody final : public Answer {
 public:
  explicit EmbeddingsBody(ResponseHead head) : head_(std::move(head)), vectors_(static_cast<size_t>(head_.choices())) {}

  void add(int index, const Output& output, std::string&) override {
    if (!output.embedding.empty()) vectors_.at(static_cast<size_t>(index)) = output.embedding;
  }

  void end(std::string& out) override {
    Json data = Json::array();
    for (size_t i = 0; i < vectors_.size(); ++i) {
      const std::vector<float>& vector = vectors_[i];
      check_work(2 * vector.size() * sizeof(Json));  // with its text
      Json json = vector;
      if (head_.request.base64) {
        json = base64({reinterpret_cast<const char*>(vector.data()), vector.size() * sizeof(float)});
      }
      data.push_back({{"object", "embedding"}, {"index", i}, {"embedding", std::move(json)}});
    }
    out += dump({{"id", head_.id},
                 {"object", "list"},
                 {"created", head_.created},
                 {"data", std::move(data)},
                 {"model", head_.request.model},
                 {"usage", {{"prompt_tokens", head_.prompt_tokens}, {"total_tokens", head_.prompt_tokens}}}});
  }

 private:
  ResponseHead head_;
  std::vector<std::vector<float>> vectors_;
};

}  // namespace

const ApiDefinition& embedding_api() {
  static const ApiDefinition api{
      .path = "/v1/embeddings",
      .summary = "Embed texts: vectors from the final hidden states.",
      .in_batches = true,
      .fields = join({kModelField,
                      {"input", read_prompt, schemas::kPrompts},
                      {"encoding_format", read_encoding_format, R"({"enum": ["float", "base64"]})",
                       "base64: float32, little-endian"},
                      {"dimensions", read_dimensions, R"({"$ref": "#/components/schemas/Dimensions"})"},
                      {"pooling", read_pooling, R"({"enum": ["mean", "last", "cls"]})",
                       "mean of all tokens' final hidden states, or the last or first token's; by default as the "
                       "model's files say, or mean"},
                      kAddSpecialTokensField,
                      kParseSpecialField,
                      kTruncatePromptField},
                     {engine_fields()}),
      .required = {"input"},
      .settle = settle_pooling,
      .answer = [](ResponseHead head, TokenBytes) -> std::unique_ptr<Answer> {
        return std::make_unique<EmbeddingsBody>(std::move(head));
      },
      .id_prefix = "embd-",
      .prompt_field = "input",
      .answer_schema = "Embeddings",
      .schemas = R"json({
  "Embeddings": {"type": "object", "required": ["object", "data", "model", "usage"],
    "properties": {"id": {"type": "string"}, "object": {"const": "list"}, "created": {"type": "integer"},
      "model": {"type": "string"}, "data": {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["object", "index", "embedding"],
        "properties": {"object": {"const": "embedding"}, "index": {"type": "integer"},
          "embedding": {"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "string"}]}}}},
      "usage": {"type": "object", "required": ["prompt_tokens", "total_tokens"]}}}
})json"};
  return api;
}

}  // namespace quire
