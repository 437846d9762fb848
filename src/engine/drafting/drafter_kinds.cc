#include "engine/drafting/drafter_kinds.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/quote.h"

namespace quire {
namespace {

static_assert(kDrafters.size() == static_cast<size_t>(DrafterKind::kMtp) + 1);

void check(const EngineOptions& o) {
  if (o.speculative != "auto" && std::ranges::find(kDrafters, o.speculative) == kDrafters.end())
    throw invalid("--speculative {} is not supported; use off, auto, {}", quote(o.speculative),
                  fmt::join(kDrafters, ", "));
  if (o.num_speculative_tokens < 1 || o.num_speculative_tokens > kMostSpeculativeTokens)
    throw invalid("--num-speculative-tokens must be between 1 and {}, not {}", kMostSpeculativeTokens,
                  o.num_speculative_tokens);
  if (o.speculative_acceptance != "exact" && o.speculative_acceptance != "rejection")
    throw invalid("--speculative-acceptance {} is not supported; use exact or rejection",
                  quote(o.speculative_acceptance));
  if (!o.kv_cache) throw invalid("--speculative {} needs the KV cache; leave out --no-kv-cache", o.speculative);
  if (!o.speculative_corpus.empty() && o.speculative != "auto" && o.speculative != name(DrafterKind::kCorpus))
    throw invalid("--speculative-corpus needs --speculative corpus or auto");
}

// Drafters that compute and need a file.
struct Material {
  DrafterKind kind;
  std::string EngineOptions::*path;
  const char* flag;
};
constexpr Material kMaterials[] = {
    {DrafterKind::kDraft, &EngineOptions::draft_model, "--draft-model"},
    {DrafterKind::kEagle, &EngineOptions::eagle_head, "--eagle-head"},
    {DrafterKind::kMedusa, &EngineOptions::medusa_heads, "--medusa-heads"},
};

}  // namespace

NamedDrafters named_drafters(const EngineOptions& o, bool has_mtp) {
  NamedDrafters named;
  if (!speculates(o)) return named;
  check(o);
  const bool automatic = o.speculative == "auto";
  const auto is = [&](DrafterKind kind) { return o.speculative == name(kind); };
  if (automatic || is(DrafterKind::kNgram)) named.texts.push_back(DrafterKind::kNgram);
  if (!o.speculative_corpus.empty()) named.texts.push_back(DrafterKind::kCorpus);
  if (automatic || is(DrafterKind::kCorpus) || is(DrafterKind::kRecent)) named.texts.push_back(DrafterKind::kRecent);
  if (is(DrafterKind::kLookahead)) named.texts.push_back(DrafterKind::kLookahead);
  for (const Material& material : kMaterials) {
    const bool given = !(o.*material.path).empty();
    if (is(material.kind) && !given) throw invalid("--speculative {} needs {}", o.speculative, material.flag);
    if (!named.model && (is(material.kind) || (automatic && given))) named.model = material.kind;
  }
  if (is(DrafterKind::kEarlyExit)) named.model = DrafterKind::kEarlyExit;
  if (is(DrafterKind::kMtp) || (automatic && !named.model && has_mtp)) named.model = DrafterKind::kMtp;
  return named;
}

}  // namespace quire
