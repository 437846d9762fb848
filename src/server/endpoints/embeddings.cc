#include "server/endpoints/embeddings.h"

#include <bit>

#include "base/working_memory.h"

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

std::unique_ptr<Answer> embeddings_body(ResponseHead head) { return std::make_unique<EmbeddingsBody>(std::move(head)); }

}  // namespace quire
