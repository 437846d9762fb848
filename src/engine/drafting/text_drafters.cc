#include "engine/drafting/text_drafters.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/files/mapped_file.h"

namespace quire {
namespace {

constexpr size_t kNgramBytes = 84;  // SuffixAutomaton's memory for a token
constexpr size_t kLookaheadBytes = 48 << 10;
// Recent answers: 28 bytes a token.
constexpr size_t kRecentTokens = 1 << 16, kRecentTenants = 8, kRecentBytes = 28 * kRecentTokens * kRecentTenants;
constexpr int kLeastMatch = 2;  // in other texts than the sequence itself
constexpr size_t kLongestCorpus = size_t{1} << 28;

// Other tenants, and requests with another salt, never see an answer.
std::string owner(const Sequence& s) { return s.request->tenant + '\0' + s.request->cache_salt; }

Corpus read_corpus(const std::string& path, const Tokenizer* tokenizer) {
  if (!tokenizer) throw unsupported("--speculative-corpus needs a vocabulary, which this model does not have");
  return Corpus(tokenizer->encode(read_text_file(path, kLongestCorpus)));
}

}  // namespace

TextDrafters::TextDrafters(std::vector<DrafterKind> kinds, const EngineOptions& o, const Tokenizer* tokenizer)
    : kinds_(std::move(kinds)) {
  if (has(DrafterKind::kCorpus)) corpus_ = read_corpus(o.speculative_corpus, tokenizer);
  if (has(DrafterKind::kRecent)) recent_.emplace(kRecentTokens, kRecentTenants, kLeastMatch);
}

bool TextDrafters::has(DrafterKind kind) const { return std::ranges::find(kinds_, kind) != kinds_.end(); }

size_t TextDrafters::memory_bytes(std::span<const DrafterKind> kinds, size_t tokens, int sequences) {
  const auto named = [&](DrafterKind kind) { return std::ranges::find(kinds, kind) != kinds.end(); };
  return (named(DrafterKind::kNgram) ? tokens * kNgramBytes : 0) + (named(DrafterKind::kRecent) ? kRecentBytes : 0) +
         (named(DrafterKind::kLookahead) ? static_cast<size_t>(sequences) * kLookaheadBytes : 0);
}

void TextDrafters::begin_step(const Sequences& running) {
  tokens_ = 0;
  for (const Sequence& s : running) tokens_ += s.drafting && s.drafting->text.ngram ? s.tokens.capacity() : 0;
}

void TextDrafters::follow_ngrams(Sequence& s) {
  TextDrafting& d = s.drafting->text;
  if (d.ngram_seen == 0 && tokens_ + s.tokens.capacity() <= most_tokens_) {
    tokens_ += s.tokens.capacity();
    d.ngram.emplace().reserve(s.tokens.capacity());
  }
  if (d.ngram) d.ngram->append(std::span<const TokenId>(s.tokens).subspan(d.ngram_seen));
  d.ngram_seen = s.tokens.size();
}

void TextDrafters::propose(DrafterKind kind, Sequence& s, int depth, Drafts& out) {
  TextDrafting& d = s.drafting->text;
  out.clear();
  switch (kind) {
    case DrafterKind::kNgram:
      follow_ngrams(s);
      if (d.ngram) d.ngram->draft(depth, 1, out);
      return;
    case DrafterKind::kCorpus:
      return corpus_->draft(s.tokens, kLeastMatch, depth, 1, out);
    case DrafterKind::kRecent:
      return recent_->draft(owner(s), s.tokens, depth, 1, out);
    case DrafterKind::kLookahead:
      if (!d.lookahead) d.lookahead.emplace(Lookahead::Options{});
      d.lookahead->append(std::span<const TokenId>(s.tokens).subspan(d.lookahead_seen));
      d.lookahead_seen = s.tokens.size();
      return d.lookahead->draft(depth, out);
    default:
      assert(false && "it does not look at tokens alone");
  }
}

void TextDrafters::observe(Sequence& s, int accepted, std::span<const TokenId> predicted) {
  TextDrafting& d = s.drafting->text;
  // Forced tokens may have followed, or the answer has ended.
  if (!d.lookahead || predicted.empty() || s.tokens.size() != d.lookahead_seen + static_cast<size_t>(accepted) + 1)
    return;
  TokenIds guessed{s.tokens[d.lookahead_seen - 1]};
  guessed.insert(guessed.end(), s.drafts.begin(), s.drafts.begin() + static_cast<std::ptrdiff_t>(predicted.size()) - 1);
  d.lookahead->observe(guessed, predicted);
  d.lookahead_seen = s.tokens.size();
}

void TextDrafters::remember(const Sequence& s) {
  if (!recent_) return;
  recent_->add(owner(s), std::span<const TokenId>(s.tokens).subspan(static_cast<size_t>(s.request->prompt_tokens)));
}

void TextDrafters::drop(DrafterKind kind, Sequence& s) {
  TextDrafting& d = s.drafting->text;
  if (kind == DrafterKind::kNgram) d.ngram.reset();
  if (kind == DrafterKind::kLookahead) d.lookahead.reset();
}

}  // namespace quire
