#include "engine/drafting/drafter_kinds.h"

#include <string>

#include "base/error.h"
#include "engine/option_names.h"

namespace quire {
namespace {

static_assert(kDrafters.size() == static_cast<size_t>(DrafterKind::kMtp) + 1);
static_assert(only(DrafterKind::kNgram) == Speculation::kNgram && only(DrafterKind::kMtp) == Speculation::kMtp);

void check_speculation(const EngineOptions& o) {
  if (o.num_speculative_tokens < 1 || o.num_speculative_tokens > kMostSpeculativeTokens)
    throw invalid("--num-speculative-tokens must be between 1 and {}, not {}", kMostSpeculativeTokens,
                  o.num_speculative_tokens);
  if (!o.kv_cache) throw invalid("--speculative {} needs the KV cache; leave out --no-kv-cache", name(o.speculative));
  if (!o.speculative_corpus.empty() && o.speculative != Speculation::kAuto && o.speculative != Speculation::kCorpus)
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
  check_speculation(o);
  const bool automatic = o.speculative == Speculation::kAuto;
  const auto is = [&](DrafterKind kind) { return o.speculative == only(kind); };
  if (automatic || is(DrafterKind::kNgram)) named.texts.push_back(DrafterKind::kNgram);
  if (!o.speculative_corpus.empty()) named.texts.push_back(DrafterKind::kCorpus);
  if (automatic || is(DrafterKind::kCorpus) || is(DrafterKind::kRecent)) named.texts.push_back(DrafterKind::kRecent);
  if (is(DrafterKind::kLookahead)) named.texts.push_back(DrafterKind::kLookahead);
  for (const Material& material : kMaterials) {
    const bool given = !(o.*material.path).empty();
    if (is(material.kind) && !given) throw invalid("--speculative {} needs {}", name(o.speculative), material.flag);
    if (!named.model && (is(material.kind) || (automatic && given))) named.model = material.kind;
  }
  if (is(DrafterKind::kEarlyExit)) named.model = DrafterKind::kEarlyExit;
  if (is(DrafterKind::kMtp) || (automatic && !named.model && has_mtp)) named.model = DrafterKind::kMtp;
  return named;
}

}  // namespace quire
