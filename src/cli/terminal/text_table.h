// Tables for a terminal.
#pragma once

#include <string>
#include <vector>

namespace quire {

// Columns as wide as their longest cell, two spaces apart. The first `left` columns are flush left, the others flush
// right. Cells are ASCII.
class TextTable {
 public:
  TextTable(std::vector<std::string> heads, size_t left) : rows_{std::move(heads)}, left_(left) {}

  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }  // as many as there are heads
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the first holds the heads
  size_t left_;
};

}  // namespace quire
