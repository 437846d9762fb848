// A batch of prompts through the public interface, for scripts/bench_python.py, which runs the same batch in Python:
//
//   bench_generate MODEL PROMPTS PROMPT_TOKENS ANSWER_TOKENS THREADS
//
// computes the batch once for each line of standard input, and prints the seconds that it took.

#include <charconv>
#include <chrono>
#include <cstdint>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "quire/answer_queue.h"
#include "quire/machine.h"

namespace {

struct Batch {
  int prompts, prompt_tokens, answer_tokens;
};

// The prompts of the script.
quire::TokenIds prompt(const Batch& batch, int index, int vocab) {
  quire::TokenIds ids;
  for (int64_t i = 0; i < batch.prompt_tokens; ++i)
    ids.push_back(static_cast<quire::TokenId>((7919 * int64_t{index} + 104729 * i) % vocab));
  return ids;
}

double run(quire::Engine& engine, const Batch& batch) {
  const auto start = std::chrono::steady_clock::now();
  quire::AnswerQueue answers(engine);
  for (int i = 0; i < batch.prompts; ++i) {
    quire::Request request{.prompt = prompt(batch, i, engine.info().vocab_size), .sampling = {}};
    request.sampling.temperature = 0;
    request.sampling.max_tokens = batch.answer_tokens;
    request.sampling.ignore_eos = true;
    answers.submit(std::move(request), quire::AnswerQueue::Announce::kEnd);
  }
  size_t tokens = 0;
  while (answers.open() > 0) {
    for (const auto ticket : answers.wait(std::chrono::milliseconds(100)))
      for (const quire::Output& piece : answers.take(ticket)) {
        if (piece.finish != quire::FinishReason::kLength) throw std::runtime_error("an answer failed: " + piece.error);
        tokens += piece.tokens.size();
      }
  }
  if (tokens != static_cast<size_t>(batch.prompts) * static_cast<size_t>(batch.answer_tokens))
    throw std::runtime_error("answers are incomplete");
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int number(std::string_view text) {
  int value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || value < 0)
    throw std::runtime_error("not a number: " + std::string(text));
  return value;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 6) throw std::runtime_error("usage: bench_generate MODEL PROMPTS PROMPT_TOKENS ANSWER_TOKENS THREADS");
  const Batch batch{number(argv[2]), number(argv[3]), number(argv[4])};
  quire::EngineOptions options;
  options.model = argv[1];
  options.threads = number(argv[5]);
  options.max_model_len = batch.prompt_tokens + batch.answer_tokens;
  options.prefix_cache = false;
  options.memory_bytes = quire::available_memory() / 3;  // the script has a model, too
  options.tuning_file = quire::default_tuning_file().string();
  quire::Engine engine(options);
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) std::cout << run(engine, batch) << std::endl;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
