#include "server/batch/database.h"

#include <sqlite3.h>

#include <utility>

#include "base/error.h"

namespace quire {
namespace {

void check_sql(sqlite3* database, const std::filesystem::path& path, int result) {
  if (result == SQLITE_OK || result == SQLITE_ROW || result == SQLITE_DONE) return;
  const char* const reason = database ? sqlite3_errmsg(database) : sqlite3_errstr(result);
  if (result == SQLITE_NOTADB || result == SQLITE_CORRUPT) throw invalid("{}: {}", path.string(), reason);
  throw no_resource("{}: {}", path.string(), reason);
}

}  // namespace

void Database::Statement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Database::Statement::Statement(sqlite3* database, const std::filesystem::path& path, std::string_view sql,
                               std::initializer_list<SqlValue> values)
    : database_(database), path_(path) {
  sqlite3_stmt* made = nullptr;
  check_sql(database, path, sqlite3_prepare_v2(database, sql.data(), static_cast<int>(sql.size()), &made, nullptr));
  statement_.reset(made);
  int place = 0;
  for (const SqlValue& value : values) {
    ++place;
    if (const auto* number = std::get_if<int64_t>(&value)) {
      check_sql(database, path, sqlite3_bind_int64(made, place, *number));
    } else if (const auto* text = std::get_if<std::string_view>(&value)) {
      check_sql(database, path,
                sqlite3_bind_text64(made, place, text->data() ? text->data() : "", text->size(), SQLITE_TRANSIENT,
                                    SQLITE_UTF8));
    }
  }
}

bool Database::Statement::next() {
  const int result = sqlite3_step(statement_.get());
  check_sql(database_, path_, result);
  return result == SQLITE_ROW;
}

int64_t Database::Statement::integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }

std::optional<int64_t> Database::Statement::optional_integer(int column) const {
  if (sqlite3_column_type(statement_.get(), column) == SQLITE_NULL) return std::nullopt;
  return integer(column);
}

std::string Database::Statement::text(int column) const {
  const auto* const bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  return bytes ? std::string(bytes, static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column)))
               : std::string();
}

Database::Transaction::Transaction(Database& database) : database_(database) { database_.run("BEGIN IMMEDIATE"); }

Database::Transaction::~Transaction() {
  if (!open_) return;
  try {
    database_.run("ROLLBACK");
  } catch (const std::exception&) {  // SQLite has rolled back already
  }
}

void Database::Transaction::commit() {
  database_.run("COMMIT");
  open_ = false;
}

Database::Database(std::filesystem::path path, std::string_view schema, int version) : path_(std::move(path)) {
  const int opened = sqlite3_open_v2(path_.c_str(), &database_,
                                     SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  try {
    check(opened);
    // The folder has one server, which holds the file as long as it runs.
    run("PRAGMA locking_mode = EXCLUSIVE");
    run("PRAGMA synchronous = FULL");
    const int64_t found = [&] {
      Statement statement = query("PRAGMA user_version");
      return statement.next() ? statement.integer(0) : 0;
    }();
    if (found == version) return;
    if (found != 0)
      throw invalid("{} was made by another version of quire: its tables are of version {}, not {}", path_.string(),
                    found, version);
    Transaction transaction(*this);
    check(sqlite3_exec(database_, std::string(schema).c_str(), nullptr, nullptr, nullptr));
    run("PRAGMA user_version = " + std::to_string(version));
    transaction.commit();
  } catch (...) {
    sqlite3_close(database_);
    throw;
  }
}

Database::~Database() { sqlite3_close(database_); }

void Database::check(int result) const { check_sql(database_, path_, result); }

Database::Statement Database::query(std::string_view sql, std::initializer_list<SqlValue> values) {
  return {database_, path_, sql, values};
}

int Database::run(std::string_view sql, std::initializer_list<SqlValue> values) {
  Statement statement = query(sql, values);
  while (statement.next()) {
  }
  return sqlite3_changes(database_);
}

}  // namespace quire
