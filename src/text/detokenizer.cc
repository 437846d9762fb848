#include "text/detokenizer.h"

#include "base/text/utf8.h"
#include "text/token_frames.h"
#include "text/tokenizer/data.h"

namespace quire {

// Appends the final part of held_ + bytes to `out` and holds back the rest.
void Detokenizer::put(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!held_.empty()) {
    joined = held_;
    joined += bytes;
    bytes = joined;
    held_.clear();
  }
  const DecodeRules& rules = tokenizer_.data().decoding;
  const bool may_strip = rules.strip_count > 0 && !options_.continues;
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Step step = utf8_step(bytes, at);
    if (step.incomplete) {
      held_ = bytes.substr(at);
      return;
    }
    if (step.length == 0) {
      out += kReplacement;
      at += static_cast<size_t>(step.bad);
      stripped_ = rules.strip_count;
      continue;
    }
    if (may_strip && stripped_ < rules.strip_count && step.character == rules.strip_character) {
      ++stripped_;
    } else {
      stripped_ = rules.strip_count;
      out.append(bytes, at, static_cast<size_t>(step.length));
    }
    at += static_cast<size_t>(step.length);
  }
}

void Detokenizer::push(TokenId id, std::string& out) {
  const TokenizerData& data = tokenizer_.data();
  if (!data.contains(id)) return;
  if (options_.frame_added && tokenizer_.is_added(id)) return put_framed(id, out);
  if (options_.skip_special && data.special[static_cast<size_t>(id)]) return;
  if (!started_ && !options_.continues && data.decoding.first_differs()) {
    Regex::Matcher matcher;
    put(data.decoding.bytes_of(data.text_to_decode(id), true, matcher), out);
  } else {
    put(data.bytes[static_cast<size_t>(id)], out);
  }
  started_ = true;
}

void Detokenizer::put_framed(TokenId id, std::string& out) {
  if (!options_.skip_special || !tokenizer_.is_special(id)) {  // otherwise a character may continue after the token
    out += lossy_utf8(held_);
    held_.clear();
  }
  out += tokenizer_.is_special(id) ? kSpecialFrame : kShownFrame;
  out += lossy_utf8(tokenizer_.data().bytes[static_cast<size_t>(id)]);
  out += kFrameEnd;
  started_ = true;
}

std::string Detokenizer::push(TokenId id) {
  std::string out;
  push(id, out);
  return out;
}

std::string Detokenizer::finish() {
  std::string out = lossy_utf8(held_);
  held_.clear();
  started_ = false;
  stripped_ = 0;
  return out;
}

}  // namespace quire
