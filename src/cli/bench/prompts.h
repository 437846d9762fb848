// The prompts of `quire bench speculative`.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct BenchPrompt {
  std::string name;  // in messages: "rename a variable", "line 3"
  std::string text;  // what the user says
};

// Copy-heavy work: answers that repeat much of the prompt, as edits, quotes and renamed code do.
std::vector<BenchPrompt> copy_prompts();

// Text that misleads drafters: its words occur again and again, each time before others. To be sampled at a high
// temperature: greedy answers repeat themselves.
std::vector<BenchPrompt> misleading_prompts();

// A file of JSON lines: {"turns": ["...", ...]}, of which the first turn counts (MT-bench), or {"prompt": "..."}. Other
// keys are ignored. Throws Error naming the file, the line and the field.
std::vector<BenchPrompt> read_prompts(const std::filesystem::path& path);

}  // namespace quire
