#include <array>
#include <random>

#include "cli/bench/prompts.h"

namespace quire {
namespace {

constexpr std::array<std::string_view, 24> kNouns = {
    "river", "clock", "garden", "letter", "stone",  "window", "train", "lamp",  "bridge", "forest", "coin",   "mirror",
    "ship",  "tower", "harbor", "violin", "basket", "candle", "road",  "piano", "field",  "engine", "island", "needle"};
constexpr std::array<std::string_view, 8> kVerbs = {"sees",    "carries", "finds",   "follows",
                                                    "forgets", "paints",  "repairs", "counts"};

}  // namespace

std::vector<BenchPrompt> misleading_prompts() {
  std::mt19937 random(1);  // the same words everywhere: the standard defines its numbers
  const auto one_of = [&](const auto& words) { return std::string(words[random() % words.size()]); };
  std::vector<BenchPrompt> prompts;
  for (int i = 1; i <= 20; ++i) {
    std::string text = "Continue with random sentences of the same kind.\n\n";
    for (int sentence = 0; sentence < 24; ++sentence)
      text += "The " + one_of(kNouns) + " " + one_of(kVerbs) + " the " + one_of(kNouns) + " near the " +
              one_of(kNouns) + ". ";
    prompts.push_back({"random sentences " + std::to_string(i), std::move(text)});
  }
  return prompts;
}

}  // namespace quire
