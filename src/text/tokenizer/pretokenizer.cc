#include "text/tokenizer/pretokenizer.h"

#include <algorithm>

#include "base/text/text_search.h"
#include "base/text/unicode.h"
#include "base/text/utf8.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/text_growth.h"

namespace quire {
namespace {

struct Part {
  size_t begin, end;
  bool match;
};

// Splits `text` at matches (ascending ranges) as the behavior requires, and calls put(part) for each part.
template <class Put>
class Splitter {
 public:
  Splitter(std::string_view text, SplitBehavior behavior, bool invert, Put put)
      : text_(text), behavior_(behavior), invert_(invert), put_(put) {}

  void match(size_t begin, size_t end) {
    if (begin > done_) part(done_, begin, invert_);
    part(begin, end, !invert_);
    done_ = end;
  }

  void finish() {
    if (done_ < text_.size()) part(done_, text_.size(), invert_);
    if (held_.end > held_.begin) put(held_);
  }

 private:
  void put(const Part& p) { put_(text_.substr(p.begin, p.end - p.begin)); }

  // `held_` is the last part, which the next one may still extend.
  void part(size_t begin, size_t end, bool match) {
    const bool empty = held_.begin == held_.end;
    bool join = false;
    switch (behavior_) {
      case SplitBehavior::kIsolated:
        break;
      case SplitBehavior::kRemoved:
        if (match) {
          if (!empty) put(held_);
          held_ = {};
          return;
        }
        break;
      case SplitBehavior::kContiguous:
        join = match == held_.match;
        break;
      // A match joins the previous part unless that is a match, too.
      case SplitBehavior::kMergedWithPrevious:
        join = match && !held_.match;
        break;
      // A match waits for the next part unless that is a match, too.
      case SplitBehavior::kMergedWithNext:
        join = held_.match && !match;
        break;
    }
    if (join && !empty) {
      held_.end = end;
      held_.match = match;
    } else {
      if (!empty) put(held_);
      held_ = {begin, end, match};
    }
  }

  std::string_view text_;
  SplitBehavior behavior_;
  bool invert_;
  Put put_;
  size_t done_ = 0;
  Part held_{};
};

// Runs a text through the steps, word by word: a word passes all steps before the next word starts.
class Passage {
 public:
  Passage(const std::vector<PreTokenizerStep>& steps, bool at_start, size_t room, PreTokenizerScratch& scratch,
          const std::function<void(std::string_view)>& take)
      : steps_(steps), at_start_(at_start), room_(room), begun_(steps.size()), scratch_(scratch), take_(take) {}

  // Runs `word` through the steps from `step` on.
  void pass(size_t step, std::string_view word) {
    if (step == steps_.size()) return take_(word);
    std::visit([&](const auto& s) { apply(s, word, step + 1); }, steps_[step]);
  }

 private:
  auto passing(size_t next) {
    return [this, next](std::string_view word) { pass(next, word); };
  }

  // Each runs its parts of a word through the steps from `next` on.
  void apply(const SplitByRegex& s, std::string_view word, size_t next) {
    Splitter splitter(word, s.behavior, s.invert, passing(next));
    scratch_.matcher.for_each_match(s.regex, word, [&](size_t begin, size_t end) {
      if (!s.groups_of_three) return splitter.match(begin, end);
      size_t characters = 0;
      for (size_t at = begin; at < end; at += utf8_length(word[at])) ++characters;
      size_t in_group = (characters + 2) % 3;  // left in this group after the first one
      for (size_t at = begin; at < end;) {
        at += utf8_length(word[at]);
        if (in_group-- > 0 && at < end) continue;
        splitter.match(begin, at);
        begin = at;
        in_group = 2;
      }
    });
    splitter.finish();
  }

  void apply(const SplitByText& s, std::string_view word, size_t next) {
    Splitter splitter(word, s.behavior, s.invert, passing(next));
    if (!s.text.empty()) {
      for (size_t at = find_text(word, s.text); at != word.npos; at = find_text(word, s.text, at + s.text.size())) {
        splitter.match(at, at + s.text.size());
      }
    }
    splitter.finish();
  }

  void apply(const SplitByClass& s, std::string_view word, size_t next) {
    Splitter splitter(word, s.behavior, false, passing(next));
    for (size_t at = 0; at < word.size();) {
      const size_t begin = at;
      if (s.belongs(utf8_next(word, at))) splitter.match(begin, at);
    }
    splitter.finish();
  }

  void apply(const SplitWords&, std::string_view word, size_t next) {
    size_t begin = 0;
    int kind = 0;  // what the run since `begin` is: 0 white space, 1 word, 2 neither
    for (size_t at = 0; at < word.size();) {
      const size_t here = at;
      const char32_t c = utf8_next(word, at);
      const int now = is_word(c) ? 1 : is_white_space(c) ? 0 : 2;
      if (now == kind) continue;
      if (kind != 0) pass(next, word.substr(begin, here - begin));
      begin = here;
      kind = now;
    }
    if (kind != 0) pass(next, word.substr(begin));
  }

  void apply(const SplitByLength& s, std::string_view word, size_t next) {
    size_t begin = 0, characters = 0;
    for (size_t at = 0; at < word.size();) {
      at += utf8_length(word[at]);
      if (++characters < s.length && at < word.size()) continue;
      pass(next, word.substr(begin, at - begin));
      begin = at;
      characters = 0;
    }
  }

  void apply(const AddPrefixSpace&, std::string_view word, size_t next) {
    pass(next, word.starts_with(' ') ? word : keep(" " + std::string(word)));
  }

  void apply(const ToAlphabet&, std::string_view word, size_t next) { pass(next, keep(bytes_to_alphabet(word))); }

  void apply(const Metaspace& s, std::string_view word, size_t next) {
    std::string text;
    text.reserve(word.size() + word.size() / 2 + s.replacement.size());
    for (char c : word) c == ' ' ? text += s.replacement : text += c;
    // The first word that a step sees starts the text.
    const bool first = at_start_ && !begun_[next - 1];
    begun_[next - 1] = true;
    const bool prepend = s.prepend == Metaspace::Prepend::kAlways || (s.prepend == Metaspace::Prepend::kFirst && first);
    if (prepend && !text.starts_with(s.replacement)) text.insert(0, s.replacement);
    const std::string_view kept = keep(std::move(text));
    if (!s.split) return pass(next, kept);
    apply(SplitByText{s.replacement, SplitBehavior::kMergedWithNext}, kept, next);
  }

  std::string_view keep(std::string text) {
    if (text.size() > room_) throw invalid("the tokenizer's steps make this text too long");
    room_ -= text.size();
    return scratch_.texts.emplace_back(std::move(text));
  }

  const std::vector<PreTokenizerStep>& steps_;
  bool at_start_;
  size_t room_;              // bytes that the steps may still produce
  std::vector<bool> begun_;  // steps that have seen a word
  PreTokenizerScratch& scratch_;
  const std::function<void(std::string_view)>& take_;
};

}  // namespace

void PreTokenizer::split(std::string_view text, bool at_start, PreTokenizerScratch& scratch,
                         const std::function<void(std::string_view)>& take) const {
  Passage(steps, at_start, longest_result(text.size()), scratch, take).pass(0, text);
}

}  // namespace quire
