// Loads a model and streams an answer: embed MODEL QUESTION
#include <quire/engine.h>

#include <exception>
#include <iostream>
#include <string>

namespace {

std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out + '"';
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::cerr << "usage: embed MODEL QUESTION\n";
    return 2;
  }
  quire::Engine engine({.model = argv[1], .max_model_len = 1024, .max_num_seqs = 1});
  const std::string messages = R"([{"role": "system", "content": "You are a helpful assistant."},
                                    {"role": "user", "content": )" +
                               json_string(argv[2]) + "}]";
  quire::Request request{
      .prompt = engine.encode_messages(messages),
      .sampling = {.temperature = 0, .max_tokens = 64},
  };
  engine.generate(request, [](const quire::Output& output) { std::cout << output.text << std::flush; });
  std::cout << '\n';
} catch (const std::exception& error) {
  std::cerr << "embed: " << error.what() << '\n';
  return 1;
}
