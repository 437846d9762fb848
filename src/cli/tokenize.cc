#include "cli/commands.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/text/quote.h"
#include "base/text/utf8.h"
#include "cli/load_tokenizer.h"
#include "json/parse.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

struct TokenizeOptions {
  std::string tokenizer, model;
  std::string prompt;
  bool has_prompt = false;
  bool decode = false, add_special = false, no_parse_special = false, jsonl = false;
};

// On one line, even if the text has newlines. `ascii` escapes everything else, for programs.
std::string printed(const Json& value, bool ascii = true) {
  return value.dump(-1, ' ', ascii, Json::error_handler_t::replace);
}

TokenId checked_id(const Tokenizer& tokenizer, int64_t id, const std::string& where) {
  if (id < 0 || id >= tokenizer.vocab_size())
    throw invalid("{}{} is not a token id: ids are 0 to {}", where, id, tokenizer.vocab_size() - 1);
  return static_cast<TokenId>(id);
}

TokenIds ids_of(const Tokenizer& tokenizer, const Json& value, size_t line) {
  if (!value.is_array()) throw invalid("line {} must be a JSON array of token ids", line);
  const std::string where = fmt::format("line {}: ", line);
  TokenIds ids;
  for (const Json& id : value) {
    if (!id.is_number_integer() || id > 0x7FFFFFFF) throw invalid("{}{} is not a token id", where, id.dump());
    ids.push_back(checked_id(tokenizer, id.get<int64_t>(), where));
  }
  return ids;
}

// Reads and writes one JSON value per line; flushes each, so that a program can talk to it.
void run_lines(const Tokenizer& tokenizer, const TokenizeOptions& options, EncodeOptions encode) {
  size_t number = 0;
  for (std::string line; std::getline(std::cin, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    if (!Json::accept(line)) throw invalid("line {} is not valid JSON: {}", number, quote(line));
    const Json value = parse_json(line, fmt::format("line {}", number));
    if (options.decode) {
      std::cout << printed(tokenizer.decode(ids_of(tokenizer, value, number))) << std::endl;
    } else {
      if (!value.is_string()) throw invalid("line {} must be a JSON string", number);
      std::cout << Json(tokenizer.encode(value.get<std::string>(), encode)).dump() << std::endl;
    }
  }
}

// Ids as a person writes them: numbers separated by spaces or commas, perhaps in brackets.
TokenIds ids_in(const Tokenizer& tokenizer, const std::string& text) {
  constexpr const char* kSeparators = " ,;[]()\t\r\n";
  TokenIds ids;
  for (size_t at = 0; (at = text.find_first_not_of(kSeparators, at)) != text.npos;) {
    const std::string word = text.substr(at, text.find_first_of(kSeparators, at) - at);
    int64_t id = 0;
    const char* const end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, id);
    if (error != std::errc() || stop != end)
      throw invalid("--decode: {} is not a token id; expected numbers such as 9906,1917", quote(word));
    ids.push_back(checked_id(tokenizer, id, "--decode: "));
    at += word.size();
  }
  return ids;
}

void print_tokens(const Tokenizer& tokenizer, const TokenIds& ids) {
  for (TokenId id : ids) {
    // Part of a character cannot be shown, so the token is shown as the vocabulary spells it.
    const std::string_view bytes = tokenizer.token_bytes(id);
    fmt::print("{:>8}  {}\n", id,
               is_utf8(bytes) ? printed(std::string(bytes), false) : std::string(tokenizer.token_text(id)));
  }
  fmt::print("{} tokens\n", ids.size());
}

void run_tokenize(const TokenizeOptions& options) {
  if (options.tokenizer.empty() == options.model.empty())
    throw CLI::ValidationError("pass either --tokenizer FILE or -m MODEL");
  if (options.jsonl && options.has_prompt)
    throw CLI::ValidationError("--jsonl reads standard input; it cannot be combined with -p");
  const Tokenizer tokenizer = load_tokenizer(options.tokenizer, options.model);
  const EncodeOptions encode{.add_special = options.add_special, .parse_special = !options.no_parse_special};
  if (options.jsonl) return run_lines(tokenizer, options, encode);
  const std::string text =
      options.has_prompt ? options.prompt : std::string(std::istreambuf_iterator<char>(std::cin), {});
  if (options.decode) {
    fmt::print("{}\n", tokenizer.decode(ids_in(tokenizer, text)));
  } else {
    print_tokens(tokenizer, tokenizer.encode(text, encode));
  }
}

}  // namespace

void add_tokenize_command(CLI::App& app) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command = app.add_subcommand("tokenize", "Turn text into token ids, or back");
  command->add_option("-m,--model", options->model, "use the tokenizer of this model: a known name, file or directory")
      ->type_name("MODEL");
  command->add_option("--tokenizer", options->tokenizer, "use this tokenizer.json, tokenizer.json.gz or GGUF file")
      ->type_name("FILE");
  CLI::Option* prompt = command->add_option("-p,--prompt", options->prompt,
                                            "the text, or with --decode the ids (default: standard input)");
  prompt->type_name("TEXT");
  command->add_flag("--decode", options->decode, "turn ids into text");
  command->add_flag("--add-special", options->add_special,
                    "add the tokens that the model expects around a text (BOS, EOS)");
  command->add_flag("--no-parse-special", options->no_parse_special, "treat special tokens in the text as plain text");
  command->add_flag("--jsonl", options->jsonl,
                    "read one JSON string per line and write one JSON array of ids per line; with --decode the other "
                    "way round");
  command->callback([options, prompt] {
    options->has_prompt = prompt->count() > 0;
    run_tokenize(*options);
  });
}

}  // namespace quire
