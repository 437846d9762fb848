#include "engine/drafting/text_drafters.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/mapped_file.h"

namespace quire {
namespace {

constexpr size_t kNgramBytes = 84;  // of a token: SuffixAutomaton
constexpr size_t kLookaheadBytes = 48 << 10;
// Recent answers: 28 bytes a token.
constexpr size_t kRecentTokens = 1 << 16, kRecentTenants = 8, kRecentBytes = 28 * kRecentTokens * kRecentTenants;
constexpr int kLeastMatch = 2;  // in other texts than the sequence itself
constexpr size_t kLongestCorpus = size_t{1} << 28;

// Other tenants, and requests with another salt, never see an answer.
std::string owner(const Sequence& s) { return s.request->tenant + '\0' + s.request->cache_salt; }

Corpus read_corpus(const std::string& path, const Tokenizer* tokenizer) {
  if (!tokenizer) throw unsupported("--speculative-corpus needs a vocabulary, which this model does not have");
  const MappedFile file(path);
  if (file.bytes().size() > kLongestCorpus)
    throw invalid("--speculative-corpus {} has {} MiB; at most {} are supported", path, file.bytes().size() >> 20,
                  kLongestCorpus >> 20);
  return Corpus(tokenizer->encode({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}));
}

}  // namespace

std::string_view drafter_name(TextDrafters::Kind kind) {
  switch (kind) {
    case TextDrafters::kNgram:
      return "ngram";
    case TextDrafters::kCorpus:
      return "corpus";
    case TextDrafters::kRecent:
      return "recent";
    case TextDrafters::kLookahead:
      return "lookahead";
  }
  return "ngram";
}

TextDrafters::TextDrafters(const EngineOptions& o, const Tokenizer* tokenizer) {
  const bool automatic = o.speculative == "auto", corpus = o.speculative == "corpus";
  if (!o.speculative_corpus.empty() && !automatic && !corpus)
    throw invalid("--speculative-corpus needs --speculative corpus or auto");
  if (automatic || o.speculative == "ngram") kinds_.push_back(kNgram);
  if (!o.speculative_corpus.empty()) {
    corpus_ = read_corpus(o.speculative_corpus, tokenizer);
    kinds_.push_back(kCorpus);
  }
  if (automatic || corpus || o.speculative == "recent") {
    recent_.emplace(kRecentTokens, kRecentTenants, kLeastMatch);
    kinds_.push_back(kRecent);
  }
  if (o.speculative == "lookahead") kinds_.push_back(kLookahead);
}

bool TextDrafters::has(Kind kind) const { return std::ranges::find(kinds_, kind) != kinds_.end(); }

size_t TextDrafters::memory_bytes(size_t tokens, int sequences) const {
  return (has(kNgram) ? tokens * kNgramBytes : 0) + (has(kRecent) ? kRecentBytes : 0) +
         (has(kLookahead) ? static_cast<size_t>(sequences) * kLookaheadBytes : 0);
}

void TextDrafters::begin_step(const Sequences& running) {
  tokens_ = 0;
  for (const Sequence& s : running) tokens_ += s.drafting && s.drafting->ngram ? s.tokens.capacity() : 0;
}

void TextDrafters::follow(Sequence& s) {
  SequenceDrafting& d = *s.drafting;
  if (d.seen == 0) {
    if (has(kNgram) && tokens_ + s.tokens.capacity() <= most_tokens_) {
      tokens_ += s.tokens.capacity();
      d.ngram.emplace().reserve(s.tokens.capacity());
    }
    if (has(kLookahead)) d.lookahead.emplace(Lookahead::Options{});
  }
  const auto news = std::span<const TokenId>(s.tokens).subspan(d.seen);
  if (d.ngram) d.ngram->append(news);
  if (d.lookahead) d.lookahead->append(news);
  d.seen = s.tokens.size();
}

void TextDrafters::propose(Kind kind, Sequence& s, int depth, Drafts& out) {
  SequenceDrafting& d = *s.drafting;
  out.clear();
  switch (kind) {
    case kNgram:
      if (d.ngram) d.ngram->draft(depth, 1, out);
      return;
    case kCorpus:
      return corpus_->draft(s.tokens, kLeastMatch, depth, 1, out);
    case kRecent:
      return recent_->draft(owner(s), s.tokens, depth, 1, out);
    case kLookahead:
      return d.lookahead->draft(depth, out);
  }
}

void TextDrafters::observe(Sequence& s, int accepted, std::span<const TokenId> predicted) {
  SequenceDrafting& d = *s.drafting;
  // Forced tokens may have followed, or the answer has ended.
  if (!d.lookahead || predicted.empty() || s.tokens.size() != d.seen + static_cast<size_t>(accepted) + 1) return;
  TokenIds guessed{s.tokens[d.seen - 1]};
  guessed.insert(guessed.end(), s.drafts.begin(), s.drafts.begin() + static_cast<std::ptrdiff_t>(predicted.size()) - 1);
  d.lookahead->observe(guessed, predicted);
  d.seen = s.tokens.size();
}

void TextDrafters::remember(const Sequence& s) {
  if (!recent_) return;
  recent_->add(owner(s), std::span<const TokenId>(s.tokens).subspan(static_cast<size_t>(s.request->prompt_tokens)));
}

}  // namespace quire
