// Byte-pair encoding: a word starts as characters (or bytes), and the best-ranked adjacent pair is merged until no
// pair has a rank. One implementation for byte-level BPE (GPT-2), BPE over text with byte fallback (Gemma, Mistral) and
// SentencePiece's BPE by scores (Llama 2 GGUFs).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "quire/types.h"

namespace quire {

// (left id, right id) to (rank, merged id): a flat hash table.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank;
    int32_t id;
  };
  void reserve(size_t merges);
  void set(int32_t left, int32_t right, Merge merge, bool replace);
  const Merge* find(int32_t left, int32_t right) const;
  template <class Fn>
  void for_each(Fn fn) const {
    for (const Slot& s : slots_) {
      if (s.key != kEmpty) fn(static_cast<int32_t>(s.key >> 32), static_cast<int32_t>(s.key & 0xFFFFFFFF), s.merge);
    }
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge{};
  };
  size_t slot_of(uint64_t key) const;
  std::vector<Slot> slots_;
  size_t used_ = 0;
};

// One thread's memory while it encodes; also counts the work, for tests.
struct BpeScratch {
  struct Symbol {
    int32_t id;
    int32_t previous, next;  // -1 at the ends
    uint32_t rank;           // rank of the pair with the next symbol; kNoRank: they do not merge
    int32_t merged;          // what that pair becomes
  };
  std::vector<Symbol> symbols;
  std::vector<uint64_t> heap;
  uint64_t operations = 0;  // table look-ups and heap operations so far
};

// Merges the symbols `ids` (a word) in place: rank first, then from the left. n log n in their number.
void bpe_merge(const MergeTable& table, std::vector<int32_t>& ids, BpeScratch& scratch);

// The model; immutable once built.
struct BpeModel {
  MergeTable merges;
  bool byte_level = false;     // words are bytes, first_symbols below
  bool byte_fallback = false;  // a character without a token becomes its bytes' tokens <0xXX>
  bool fuse_unk = false;       // adjacent unknown characters become one unknown token
  bool ignore_merges = false;  // a word that is a token is encoded as that token
  bool raw_bytes = false;      // text may be ill-formed; a character's first byte gives its length
  std::optional<TokenId> unk;
  std::string continuing_prefix, word_suffix;

  // Symbols from vocabulary_size on are not tokens: characters and merge results that only other merges use. Those left
  // at the end are written as extra[id - vocabulary_size], which may be empty.
  int32_t vocabulary_size = 0;
  std::vector<TokenIds> extra;

  std::array<int32_t, 256> first_symbols{};                   // byte level; kNoToken: the byte is dropped
  std::array<TokenId, 256> byte_tokens{};                     // <0xXX>; kNoToken: not in the vocabulary
  std::unordered_map<std::string_view, int32_t> symbols;      // text level: every token and extra symbol
  std::unordered_map<std::string_view, TokenId> whole_words;  // ignore_merges: words and their tokens
  size_t longest_word = 0;                                    // length of the longest in whole_words

  // A Bloom filter of the character pairs that some merge joins: cutting a text between any other pair does not change
  // the result. Empty: never cut.
  std::vector<uint64_t> joints;

  // Fills `joints` if cutting is possible at all. symbol_texts: the text of every token and extra symbol.
  void find_joints(const std::vector<std::string_view>& symbol_texts);

  // Appends the ids of one word to `out`.
  void encode(std::string_view word, BpeScratch& scratch, TokenIds& out) const;
  // The end of the next part, from `begin` on, that can be encoded on its own.
  size_t next_cut(std::string_view word, size_t begin) const;

 private:
  bool may_join(char32_t left, char32_t right) const;
  void first_symbols_of(std::string_view word, std::vector<int32_t>& ids) const;
};

}  // namespace quire
