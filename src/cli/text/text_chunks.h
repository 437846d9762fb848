// A text in chunks of equal length, as llama.cpp's tools for perplexity and importance take it: each chunk is a prompt of
// its own.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <span>
#include <string>

#include "engine/loaded_model.h"

namespace quire {

struct TextChunks {
  TokenIds ids;     // of all chunks; each begins with the BOS token if the model's prompts do
  size_t size = 0;  // tokens of a chunk

  size_t count() const { return ids.size() / size; }
  std::span<const TokenId> chunk(size_t i) const { return std::span(ids).subspan(i * size, size); }
};

// A flag for how many chunks to take: -1, for all, or at least 1.
CLI::Validator check_chunk_count();

// Options of a model that computes chunks of this many tokens, one after the other.
EngineOptions one_chunk_at_a_time(EngineOptions options, int size);

// Of a UTF-8 file; a rest that is no whole chunk is left out. A file whose name ends in .jsonl has on each line an object
// with "messages", which the model's chat template renders, or with "text". size: at least 3. most: chunks, from the
// beginning; -1: all. model: its name, for messages. Throws Error: the model has no vocabulary, or no template for messages; a line is something else;
// the text is too short for a chunk.
TextChunks read_chunks(const ModelText& text, const std::optional<ChatTemplate>& chat_template,
                       const std::string& model, const std::string& file, int size, int most);
TextChunks read_chunks(const LoadedModel& model, const std::string& file, int size, int most);

}  // namespace quire
