#include "cli/tokenize.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/gunzip.h"
#include "base/mapped_file.h"
#include "base/utf8.h"
#include "format/gguf.h"
#include "model/gguf_vocabulary.h"
#include "model/registry.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

using nlohmann::json;

struct Options {
  std::string tokenizer, model;
  std::string prompt;
  bool has_prompt = false;
  bool decode = false, add_special = false, no_parse_special = false, jsonl = false;
};

std::string read_maybe_packed(const std::filesystem::path& path) {
  const MappedFile file(path);
  if (is_gzip(file.bytes())) return gunzip(file.bytes(), path.string());
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// A GGUF file, a tokenizer.json (.gz), or a folder that holds one of those.
Tokenizer load_tokenizer(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  if (fs::is_directory(path)) {
    for (const char* name : {"tokenizer.json", "tokenizer.json.gz"}) {
      if (fs::exists(path / name)) return load_tokenizer(path / name);
    }
    throw not_found("{}: the folder has no tokenizer.json", path.string());
  }
  if (path.extension() == ".gguf") return gguf_tokenizer(Gguf::open(path));
  const fs::path config = path.parent_path() / "tokenizer_config.json";
  return Tokenizer::from_hf_json(read_maybe_packed(path), path.string(),
                                 fs::exists(config) ? read_text_file(config) : std::string());
}

Tokenizer load_tokenizer(const Options& options) {
  if (!options.tokenizer.empty()) return load_tokenizer(std::filesystem::path(options.tokenizer));
  return load_tokenizer(resolve_model(options.model));
}

// On one line whatever a reader takes for a line's end: for programs in ASCII, for people as it is.
std::string printed(const json& value, bool ascii = true) {
  return value.dump(-1, ' ', ascii, json::error_handler_t::replace);
}

TokenIds ids_of(const json& value, size_t line) {
  if (!value.is_array()) throw invalid("line {}: shall be an array of token ids", line);
  TokenIds ids;
  for (const json& id : value) {
    if (!id.is_number_integer() || id < 0 || id > 0x7FFFFFFF)
      throw invalid("line {}: {} is no token id", line, id.dump());
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

// One JSON value a line in, one a line out; flushed, so that a program can talk to it.
void run_lines(const Tokenizer& tokenizer, const Options& options, EncodeOptions encode) {
  size_t number = 0;
  for (std::string line; std::getline(std::cin, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    json value;
    try {
      value = json::parse(line);
    } catch (const json::exception& e) {
      throw invalid("line {}: {}", number, e.what());
    }
    if (options.decode) {
      std::cout << printed(tokenizer.decode(ids_of(value, number))) << std::endl;
    } else {
      if (!value.is_string()) throw invalid("line {}: shall be a JSON string", number);
      std::cout << json(tokenizer.encode(value.get<std::string>(), encode)).dump() << std::endl;
    }
  }
}

// Ids as a person writes them: numbers with anything that is no digit between them.
TokenIds ids_in(const std::string& text) {
  TokenIds ids;
  for (size_t at = 0; (at = text.find_first_of("0123456789", at)) != text.npos;) {
    int64_t id = 0;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
      id = id * 10 + (text[at] - '0');
      if (id > 0x7FFFFFFF) throw invalid("\"{}…\" is no token id", id);
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

void print_tokens(const Tokenizer& tokenizer, const TokenIds& ids) {
  for (TokenId id : ids) {
    // Part of a character cannot be shown; its token's spelling can.
    const std::string_view bytes = tokenizer.token_bytes(id);
    fmt::print("{:>8}  {}\n", id,
               is_utf8(bytes) ? printed(std::string(bytes), false) : std::string(tokenizer.token_text(id)));
  }
  fmt::print("{} tokens\n", ids.size());
}

void run(const Options& options) {
  if (options.tokenizer.empty() == options.model.empty()) {
    throw invalid("give one of --tokenizer FILE and -m MODEL");
  }
  if (options.jsonl && options.has_prompt) throw invalid("--jsonl reads standard input; it excludes -p");
  const Tokenizer tokenizer = load_tokenizer(options);
  const EncodeOptions encode{.add_special = options.add_special, .parse_special = !options.no_parse_special};
  if (options.jsonl) return run_lines(tokenizer, options, encode);
  const std::string text =
      options.has_prompt ? options.prompt : std::string(std::istreambuf_iterator<char>(std::cin), {});
  if (options.decode) {
    fmt::print("{}\n", tokenizer.decode(ids_in(text)));
  } else {
    print_tokens(tokenizer, tokenizer.encode(text, encode));
  }
}

}  // namespace

void add_tokenize_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("tokenize", "Turn text into token ids, or back");
  command->add_option("--tokenizer", options->tokenizer, "a tokenizer.json, a tokenizer.json.gz or a GGUF file")
      ->type_name("FILE");
  command->add_option("-m,--model", options->model, "a model: its name or its path")->type_name("MODEL");
  CLI::Option* prompt =
      command->add_option("-p,--prompt", options->prompt, "the text (or the ids); else standard input is read");
  prompt->type_name("TEXT");
  command->add_flag("--decode", options->decode, "ids to text");
  command->add_flag("--add-special", options->add_special, "add what the model expects around a text (BOS, EOS)");
  command->add_flag("--no-parse-special", options->no_parse_special, "special tokens in the text are plain text");
  command->add_flag("--jsonl", options->jsonl,
                    "standard input holds one JSON string a line, the output one JSON array of ids a line (with "
                    "--decode the other way round)");
  command->callback([options, prompt] {
    options->has_prompt = prompt->count() > 0;
    run(*options);
  });
}

}  // namespace quire
