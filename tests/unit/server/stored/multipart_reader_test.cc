#include "server/http/multipart_reader.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

// Writes down what it is told.
class NotedForm final : public FormSink {
 public:
  void begin_part(const std::string& name, const std::optional<std::string>& filename) override {
    text += "[" + name + (filename ? "=" + *filename : "") + "]";
  }
  void add(std::string_view bytes) override { text += bytes; }
  Reply finish() override { return {}; }

  std::string text;
};

// What is read from pieces of so many bytes; "incomplete" after it if the form does not end.
std::string read_form(std::string_view form, size_t piece, std::string_view boundary = "B") {
  NotedForm sink;
  MultipartReader reader(boundary, sink);
  for (; !form.empty(); form.remove_prefix(std::min(piece, form.size()))) reader.read(form.substr(0, piece));
  return sink.text + (reader.complete() ? "" : " incomplete");
}

const std::string kForm =
    "--B\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
    "--B\r\ncontent-type: text/plain\r\ncontent-disposition:form-data; filename=\"a;\\\"b\\\".jsonl\"; "
    "name=file\r\n\r\n"
    "\r\n--Almost\r\n--\r\n-B\r\r\n"
    "--B \t\r\nContent-Disposition: form-data; name=empty\r\n\r\n\r\n"
    "--B--\r\nepilogue";
const std::string kRead = "[purpose]batch[file=a;\"b\".jsonl]\r\n--Almost\r\n--\r\n-B\r[empty]";

TEST(MultipartReader, ReadsFormsInPiecesOfAnySize) {
  for (size_t piece = 1; piece <= kForm.size(); ++piece) EXPECT_EQ(read_form(kForm, piece), kRead) << piece;
  EXPECT_EQ(read_form("preamble\r\n" + kForm, 7), kRead);
}

TEST(MultipartReader, NoticesFormsThatEndEarly) {
  const size_t end = kForm.find("--B--") + 5;
  for (size_t size = 0; size < end; ++size) {
    if (kForm.substr(0, size).ends_with("--B-")) continue;
    EXPECT_TRUE(read_form(kForm.substr(0, size), 5).ends_with("incomplete")) << size;
  }
  EXPECT_EQ(read_form(kForm.substr(0, end), 5), kRead);
}

TEST(MultipartReader, RefusesWhatIsNoForm) {
  EXPECT_THROW(read_form("--B\r\n\r\nno head\r\n--B--", 3), ApiError);
  EXPECT_THROW(read_form("--B\r\nContent-Disposition: form-data\r\n\r\nno name\r\n--B--", 3), ApiError);
  EXPECT_THROW(read_form("--B\r\nContent-Disposition: form-data; name=\"open\r\n\r\n", 3), ApiError);
  EXPECT_THROW(read_form("--Bx\r\nContent-Disposition: form-data; name=a\r\n\r\n", 3), ApiError);
  EXPECT_THROW(read_form("--B\r\nX: " + std::string(100'000, 'x'), 1000), ApiError) << "heads are bounded";
  EXPECT_THROW(read_form("--B" + std::string(100'000, ' '), 1000), ApiError);
  std::string parts;
  for (int i = 0; i < 100; ++i) parts += "--B\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n";
  EXPECT_THROW(read_form(parts, 1000), ApiError) << "parts are bounded";
}

TEST(MultipartReader, FindsTheBoundary) {
  EXPECT_EQ(form_boundary("multipart/form-data; boundary=abc"), "abc");
  EXPECT_EQ(form_boundary("Multipart/Form-Data;charset=utf-8; Boundary=\"a b\""), "a b");
  for (const char* wrong : {"", "application/json", "multipart/form-data", "multipart/form-data; boundary=",
                            "multipart/form-data; boundary=\"abc", "multipart/mixed; boundary=abc"})
    EXPECT_THROW(form_boundary(wrong), ApiError) << wrong;
  EXPECT_THROW(form_boundary("multipart/form-data; boundary=" + std::string(71, 'a')), ApiError);
}

}  // namespace
}  // namespace quire
