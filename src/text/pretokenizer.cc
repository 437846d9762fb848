#include "text/pretokenizer.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/text_growth.h"
#include "text/text_search.h"
#include "text/tokenizer_bytes.h"
#include "text/tokenizer_unicode.h"

namespace quire {
namespace {

struct Part {
  size_t begin, end;
  bool match;
};

// Puts the parts of `text`, which matches (ranges, ascending) cut it into, to `out` as the behavior says.
class Splitter {
 public:
  Splitter(std::string_view text, SplitBehavior behavior, bool invert, std::vector<std::string_view>& out)
      : text_(text), behavior_(behavior), invert_(invert), out_(out) {}

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
  void put(const Part& p) { out_.push_back(text_.substr(p.begin, p.end - p.begin)); }

  // `held_` is the last part, which the next may still join.
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
      // A match joins the part before it, unless that is a match itself.
      case SplitBehavior::kMergedWithPrevious:
        join = match && !held_.match;
        break;
      // A match waits for the part behind it, unless that is a match too.
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
  std::vector<std::string_view>& out_;
  size_t done_ = 0;
  Part held_{};
};

struct Context {
  PreTokenizerScratch& scratch;
  bool at_start;  // of this word
  size_t& room;   // bytes that may still be made of this text
  std::string_view keep(std::string text) const {
    if (text.size() > room) throw invalid("the tokenizer's steps make too long a text of this one");
    room -= text.size();
    return scratch.texts.emplace_back(std::move(text));
  }
};

void apply(const SplitByRegex& step, std::string_view word, const Context& context) {
  context.scratch.matches.clear();
  context.scratch.matcher.find_all(step.regex, word, context.scratch.matches);
  Splitter splitter(word, step.behavior, step.invert, context.scratch.next);
  for (const TextRange& m : context.scratch.matches) {
    size_t begin = m.begin;
    if (step.groups_of_three) {
      size_t characters = 0;
      for (size_t at = m.begin; at < m.end; at += utf8_length(word[at])) ++characters;
      size_t in_group = (characters + 2) % 3;  // characters still to come in this group, after the first
      for (size_t at = m.begin; at < m.end;) {
        at += utf8_length(word[at]);
        if (in_group-- > 0 && at < m.end) continue;
        splitter.match(begin, at);
        begin = at;
        in_group = 2;
      }
      continue;
    }
    splitter.match(begin, m.end);
  }
  splitter.finish();
}

void apply(const SplitByText& step, std::string_view word, const Context& context) {
  Splitter splitter(word, step.behavior, step.invert, context.scratch.next);
  if (!step.text.empty()) {
    for (size_t at = find_text(word, step.text); at != word.npos;
         at = find_text(word, step.text, at + step.text.size())) {
      splitter.match(at, at + step.text.size());
    }
  }
  splitter.finish();
}

void apply(const SplitByClass& step, std::string_view word, const Context& context) {
  Splitter splitter(word, step.behavior, false, context.scratch.next);
  for (size_t at = 0; at < word.size();) {
    const size_t begin = at;
    if (step.belongs(utf8_next(word, at))) splitter.match(begin, at);
  }
  splitter.finish();
}

void apply(const SplitWords&, std::string_view word, const Context& context) {
  size_t begin = 0;
  int kind = 0;  // of the run since `begin`: 0 white space, 1 word, 2 neither
  for (size_t at = 0; at < word.size();) {
    const size_t here = at;
    const char32_t c = utf8_next(word, at);
    const int now = is_word(c) ? 1 : is_white_space(c) ? 0 : 2;
    if (now == kind) continue;
    if (kind != 0) context.scratch.next.push_back(word.substr(begin, here - begin));
    begin = here;
    kind = now;
  }
  if (kind != 0) context.scratch.next.push_back(word.substr(begin));
}

void apply(const SplitByLength& step, std::string_view word, const Context& context) {
  size_t begin = 0, characters = 0;
  for (size_t at = 0; at < word.size();) {
    at += utf8_length(word[at]);
    if (++characters < step.length && at < word.size()) continue;
    context.scratch.next.push_back(word.substr(begin, at - begin));
    begin = at;
    characters = 0;
  }
}

void apply(const AddPrefixSpace&, std::string_view word, const Context& context) {
  context.scratch.next.push_back(word.starts_with(' ') ? word : context.keep(" " + std::string(word)));
}

void apply(const ToAlphabet&, std::string_view word, const Context& context) {
  context.scratch.next.push_back(context.keep(bytes_to_alphabet(word)));
}

void apply(const Metaspace& step, std::string_view word, const Context& context) {
  std::string text;
  text.reserve(word.size() + word.size() / 2 + step.replacement.size());
  for (char c : word) c == ' ' ? text += step.replacement : text += c;
  const bool prepend =
      step.prepend == Metaspace::Prepend::kAlways || (step.prepend == Metaspace::Prepend::kFirst && context.at_start);
  if (prepend && !text.starts_with(step.replacement)) text.insert(0, step.replacement);
  const std::string_view kept = context.keep(std::move(text));
  if (!step.split) {
    context.scratch.next.push_back(kept);
    return;
  }
  apply(SplitByText{step.replacement, SplitBehavior::kMergedWithNext}, kept, context);
}

}  // namespace

void PreTokenizer::split(std::string_view text, bool at_start, PreTokenizerScratch& scratch) const {
  scratch.words.assign(1, text);
  size_t room = longest_result(text.size());
  for (const PreTokenizerStep& step : steps) {
    scratch.next.clear();
    bool first = at_start;
    for (std::string_view word : scratch.words) {
      const Context context{scratch, first, room};
      std::visit([&](const auto& s) { apply(s, word, context); }, step);
      first = false;
    }
    scratch.words.swap(scratch.next);
  }
}

}  // namespace quire
