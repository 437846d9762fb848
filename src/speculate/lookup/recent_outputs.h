// Drafts from the server's recent answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/types.h"
#include "speculate/lookup/drafts.h"

namespace quire {

// The latest answers of one tenant, in a ring. Positions with the same hash of their last `min_match` tokens are
// chained, latest first, as in deflate (RFC 1951, 4); a chain ends where the ring has been overwritten, so nothing is
// ever removed from it. Memory: at most 28 bytes a token of the limit, allocated by the constructor. Not thread-safe.
class AnswerRing {
 public:
  static constexpr size_t kLongestMatch = 32;
  static constexpr int kOccurrences = 64;  // compared in one draft, the latest ones

  // limit: tokens, counting one for the end of each answer; at least 2.
  AnswerRing(size_t limit, int min_match);

  // Removes whole answers, oldest first, until this one fits. Of an answer longer than the ring, the end is kept.
  void add(std::span<const TokenId> answer);
  // Replaces `out` by at most `breadth` drafts of at most `depth` tokens, which end where the answer ended: those of
  // the longest match first, then the latest.
  void draft(std::span<const TokenId> context, int depth, int breadth, Drafts& out) const;

  size_t size() const { return end_ - begin_; }  // tokens, with the ends
  size_t bytes() const;                          // allocated

 private:
  using Position = uint64_t;  // counts all tokens ever added
  struct Match {
    size_t length;
    Position end;
  };

  TokenId at(Position position) const { return ring_[position % ring_.size()]; }
  size_t slot_of(std::span<const TokenId> tokens) const;
  size_t match_length(Position end, std::span<const TokenId> context) const;

  size_t min_match_;
  TokenIds ring_;  // answers, each followed by kNoToken
  Position begin_, end_;
  std::vector<Position> latest_;    // by hash: the position after the latest tokens of that hash
  std::vector<Position> previous_;  // by position in the ring: the one before of the same hash
};

// An AnswerRing for each of the tenants that were active last; tenants never see each other's answers. Memory:
// that of `tenants` rings. Not thread-safe.
class RecentOutputs {
 public:
  RecentOutputs(size_t tokens_per_tenant, size_t tenants, int min_match);

  // Of a new tenant beyond the limit: forgets the answers of the one that has neither added nor drafted for longest.
  void add(std::string_view tenant, std::span<const TokenId> answer);
  // As AnswerRing::draft().
  void draft(std::string_view tenant, std::span<const TokenId> context, int depth, int breadth, Drafts& out);

  size_t tenants() const { return rings_.size(); }
  size_t bytes() const;  // memory of all rings

 private:
  struct Tenant {
    std::string name;
    AnswerRing ring;
  };
  // Moves the tenant to the front. Null: unknown.
  AnswerRing* find(std::string_view tenant);

  size_t tokens_, limit_;
  int min_match_;
  std::list<Tenant> rings_;  // most recently used first
};

}  // namespace quire
