#include <algorithm>

#include "base/files/mapped_file.h"
#include "cli/bench/prompts.h"
#include "json/field.h"

namespace quire {
namespace {

constexpr size_t kMostPromptFileBytes = size_t{256} << 20;

Json parse_line(std::string_view line, size_t number, const std::string& file) {
  try {
    return parse_json(line, "");
  } catch (const JsonError&) {
    // Again, now with the line's number in the message.
    return parse_json(std::string(number - 1, '\n') + std::string(line), file);
  }
}

std::string read_prompt(const JsonField& line) {
  line.object();
  const bool turns = line.has("turns");
  if (!turns && !line.has("prompt"))
    throw line.error(R"(has neither "prompt" nor "turns"; expected {{"prompt": "..."}} or {{"turns": ["...", ...]}})");
  if (turns && line.at("turns").array().size() == 0) throw line.at("turns").error("must not be empty");
  const JsonField text = turns ? line.at("turns").at(0) : line.at("prompt");
  if (text.string().empty()) throw text.error("must not be empty");
  return text.string();
}

}  // namespace

std::vector<BenchPrompt> read_prompts(const std::filesystem::path& path) {
  const std::string file = path.string(), text = read_text_file(path, kMostPromptFileBytes);
  std::vector<BenchPrompt> prompts;
  size_t number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    ++number;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const JsonField value(parse_line(line, number, file), fmt::format("{}:{}", file, number));
    prompts.push_back({fmt::format("line {}", number), read_prompt(value)});
  }
  if (prompts.empty()) throw invalid("{}: the file has no prompts", file);
  return prompts;
}

}  // namespace quire
