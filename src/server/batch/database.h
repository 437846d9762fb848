// An SQLite database in one file: statements with values, and transactions that hold even if the power fails.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

struct sqlite3;
struct sqlite3_stmt;

namespace quire {

using SqlValue = std::variant<std::nullptr_t, int64_t, std::string_view>;

// nullopt becomes NULL.
inline SqlValue sql_value(std::optional<int64_t> value) { return value ? SqlValue(*value) : SqlValue(nullptr); }

// One thread at a time.
class Database {
 public:
  // A prepared statement with copies of its values.
  class Statement {
   public:
    bool next();  // to the next row; false: there is none. Throws Error as run() does.
    int64_t integer(int column) const;
    std::optional<int64_t> optional_integer(int column) const;
    std::string text(int column) const;  // NULL: empty

   private:
    friend class Database;
    Statement(sqlite3* database, const std::filesystem::path& path, std::string_view sql,
              std::initializer_list<SqlValue> values);
    struct Finalize {
      void operator()(sqlite3_stmt* statement) const;
    };
    sqlite3* database_;
    const std::filesystem::path& path_;
    std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  };

  // Takes effect as a whole, at commit(), or not at all.
  class Transaction {
   public:
    explicit Transaction(Database& database);
    ~Transaction();
    Transaction(const Transaction&) = delete;
    Transaction& operator=(const Transaction&) = delete;
    void commit();

   private:
    Database& database_;
    bool open_ = true;
  };

  // Opens or creates it. schema: statements that make its tables, if it is new; `version`: their version, from 1. Throws
  // Error: kInvalid if it is no database, is damaged or has another version; kResource if it cannot be read or written.
  Database(std::filesystem::path path, std::string_view schema, int version);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Values stand for the question marks. Throws Error (kResource): a full disk, for instance.
  Statement query(std::string_view sql, std::initializer_list<SqlValue> values = {});
  // Returns how many rows have changed.
  int run(std::string_view sql, std::initializer_list<SqlValue> values = {});

 private:
  void check(int result) const;

  const std::filesystem::path path_;
  sqlite3* database_ = nullptr;
};

}  // namespace quire
