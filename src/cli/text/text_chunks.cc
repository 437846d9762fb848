#include "cli/text/text_chunks.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "cli/flags/engine_options.h"
#include "json/parse.h"
#include "text/chat_prompt.h"

namespace quire {
namespace {

// Lines of JSON, each a text or a chat, one after the other.
TokenIds encode_lines(const ModelText& text, const std::optional<ChatTemplate>& chat_template, const std::string& model,
                      const std::string& file) {
  const std::string lines = read_text_file(file);
  const Tokenizer& tokenizer = *text.tokenizer;
  TokenIds ids;
  size_t number = 0;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = std::min(lines.find('\n', at), lines.size());
    const std::string line = lines.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const std::string place = fmt::format("{}, line {}", file, number);
    const nlohmann::ordered_json value = parse_json(line, place);
    const bool is_chat = value.is_object() && value.contains("messages");
    if (!is_chat && !(value.is_object() && value.contains("text") && value["text"].is_string()))
      throw invalid("{}: a line must be an object with \"messages\" or with a string \"text\"", place);
    if (is_chat && !chat_template)
      throw invalid("{}: {} has no chat template for \"messages\"; use lines with \"text\"", place, model);
    const TokenIds more =
        is_chat ? encode_chat_prompt(*chat_template, tokenizer,
                                     {.messages = value["messages"],
                                      .add_generation_prompt = false,
                                      .special_tokens = text.special_tokens})
                : tokenizer.encode(value["text"].get<std::string>(), {.add_special = false, .parse_special = false});
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

}  // namespace

CLI::Validator check_chunk_count() {
  return {[](const std::string& text) -> std::string {
            constexpr double kMost = 1e9;
            const std::string problem = between(-1, kMost)(text);
            if (!problem.empty()) return problem;
            return std::atoi(text.c_str()) == 0 ? "must be -1, for all, or at least 1, not 0" : "";
          },
          "", ""};
}

EngineOptions one_chunk_at_a_time(EngineOptions options, int size) {
  options.max_num_seqs = 1;
  options.max_num_batched_tokens = 512;
  options.max_model_len = size;
  return options;
}

TextChunks read_chunks(const LoadedModel& model, const std::string& file, int size, int most) {
  return read_chunks(model.target.text, model.chat_template, model.info.name, file, size, most);
}

TextChunks read_chunks(const ModelText& text, const std::optional<ChatTemplate>& chat_template,
                       const std::string& model, const std::string& file, int size, int most) {
  if (!text.tokenizer) throw unsupported("{} has no vocabulary, so it cannot read a text", model);
  const Tokenizer& tokenizer = *text.tokenizer;
  TextChunks chunks{file.ends_with(".jsonl")
                        ? encode_lines(text, chat_template, model, file)
                        : tokenizer.encode(read_text_file(file), {.add_special = true, .parse_special = false}),
                    static_cast<size_t>(size)};
  size_t count = chunks.count();
  if (most >= 0) count = std::min(count, static_cast<size_t>(most));
  if (count == 0) throw invalid("{} has {} tokens, too few for one chunk of {}", file, chunks.ids.size(), size);
  chunks.ids.resize(count * chunks.size);
  if (tokenizer.adds_bos() && tokenizer.bos()) {
    for (size_t i = 0; i < count; ++i) chunks.ids[i * chunks.size] = *tokenizer.bos();
  }
  return chunks;
}

}  // namespace quire
