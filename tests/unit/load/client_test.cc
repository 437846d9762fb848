#include "load/client.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace quire {
namespace {

void expect_url(const char* text, const ServerUrl& wanted) {
  const ServerUrl url = parse_server_url(text);
  EXPECT_EQ(url.host, wanted.host) << text;
  EXPECT_EQ(url.port, wanted.port) << text;
  EXPECT_EQ(url.path, wanted.path) << text;
  EXPECT_EQ(url.authority, wanted.authority) << text;
}

TEST(ServerUrl, KeepsTheAuthorityForTheHostHeader) {
  expect_url("http://localhost:8000", {"localhost", "8000", "/v1", "localhost:8000"});
  expect_url("http://example.org/api/", {"example.org", "80", "/api", "example.org"});
  expect_url("http://[::1]:8000/v1", {"::1", "8000", "/v1", "[::1]:8000"});
  expect_url("http://[::1]", {"::1", "80", "/v1", "[::1]"});
}

TEST(ServerUrl, RefusesOtherForms) {
  for (const char* wrong : {"", "localhost:8000", "https://localhost", "http://", "http://:80", "http://host:"})
    EXPECT_THROW(parse_server_url(wrong), Error) << wrong;
}

}  // namespace
}  // namespace quire
