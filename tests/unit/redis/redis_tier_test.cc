#include "redis/redis_tier.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>

#include "base/signals.h"
#include "kv/page_store.h"
#include "unit/redis/test_servers.h"

namespace quire {
namespace {

using namespace std::chrono_literals;

constexpr size_t kRedisPageBytes = 50000;

double seconds_of(auto&& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class RedisTierTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!RedisServer::is_installed()) GTEST_SKIP() << "no redis-server: apt-get install redis-server";
  }
  RedisTierOptions options(const RedisUrl& server, const std::string& identity = "model") {
    return {.server = server,
            .page_bytes = kRedisPageBytes,
            .identity = identity,
            .warn = [this](const std::string& message) { warnings_.push_back(message); },
            .timeout = 300ms};
  }
  static bool write(RedisTier& tier, int number) {
    return tier.write(sample_key(number), sample_page(number, kRedisPageBytes));
  }
  static bool read(RedisTier& tier, int number) {
    Bytes page(kRedisPageBytes);
    const bool ok = tier.read(sample_key(number), page);
    EXPECT_TRUE(!ok || page == sample_page(number, kRedisPageBytes)) << "a wrong page";
    return ok;
  }
  static bool has(RedisTier& tier, int number) {
    const PageKey key = sample_key(number);
    tier.look_for({&key, 1});
    return tier.find(key);
  }
  static std::string name(int number) {
    return "quire:" + text({page_file_identity("model", kRedisPageBytes), sample_key(number)});
  }
  static RedisReply run(const RedisUrl& server, std::initializer_list<std::string_view> words) {
    const auto deadline = std::chrono::steady_clock::now() + 5s;
    RedisConnection connection(server, 1 << 20, deadline);
    connection.add(words);
    connection.send(deadline);
    return connection.receive(deadline);
  }

  const BlockSignals no_sigpipe_;
  std::vector<std::string> warnings_;
};

TEST_F(RedisTierTest, HasWhatAnotherReplicaWrote) {
  RedisServer server;
  RedisTier one(options(server.url())), other(options(server.url()));
  EXPECT_FALSE(has(other, 1));
  EXPECT_FALSE(read(other, 1));
  EXPECT_TRUE(write(one, 1));
  EXPECT_TRUE(one.find(sample_key(1)));
  EXPECT_FALSE(other.find(sample_key(1))) << "it has not asked since";
  EXPECT_TRUE(has(other, 1));
  EXPECT_TRUE(read(other, 1));
  EXPECT_EQ(other.stats().hits, 1u);
  EXPECT_EQ(other.stats().misses, 2u);
  EXPECT_EQ(other.stats().read_bytes, kRedisPageBytes);
  EXPECT_EQ(one.stats().written_bytes, kRedisPageBytes);
  EXPECT_EQ(one.stats().errors + other.stats().errors, 0u);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(RedisTierTest, SharesNothingBetweenIdentities) {
  RedisServer server;
  RedisTier one(options(server.url())), other(options(server.url(), "another model"));
  EXPECT_TRUE(write(one, 1));
  EXPECT_FALSE(has(other, 1));
  EXPECT_FALSE(read(other, 1));
}

TEST_F(RedisTierTest, AsksForManyPagesAndReadsAhead) {
  RedisServer server;
  RedisTier one(options(server.url())), other(options(server.url()));
  for (int i = 0; i < 40; i += 2) EXPECT_TRUE(write(one, i));
  std::vector<PageKey> keys;
  for (int i = 0; i < 2000; ++i) keys.push_back(sample_key(i));
  other.look_for(keys);
  for (int i = 0; i < 2000; ++i) EXPECT_EQ(other.find(keys[i]), i < 40 && i % 2 == 0) << i;
  for (int i = 0; i < 40; ++i) other.prefetch(keys[i]);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(read(other, i), i % 2 == 0) << i;
  // What was announced and not read does not confuse what follows.
  for (int i = 0; i < 10; ++i) other.prefetch(keys[i]);
  EXPECT_TRUE(read(other, 4));
  other.prefetch(keys[6]);
  EXPECT_TRUE(has(other, 2));
  other.prefetch(keys[6]);
  EXPECT_TRUE(write(other, 1));
  other.prefetch(keys[6]);
  other.refresh();
  EXPECT_TRUE(read(one, 1));
  EXPECT_EQ(other.stats().errors, 0u);
}

TEST_F(RedisTierTest, NeverReturnsADamagedPageAndReplacesIt) {
  RedisServer server;
  RedisTier tier(options(server.url()));
  EXPECT_TRUE(write(tier, 1));
  const std::string whole = run(server.url(), {"GET", name(1)}).text;
  ASSERT_EQ(whole.size(), page_file_bytes(kRedisPageBytes));
  std::string flipped = whole, other = whole;
  flipped[whole.size() / 2] ^= 1;
  other[30] ^= 1;
  for (const std::string& value : {flipped, other, whole.substr(0, 100), whole + "x", std::string()}) {
    run(server.url(), {"SET", name(1), value});
    EXPECT_TRUE(has(tier, 1));
    EXPECT_FALSE(read(tier, 1));
    EXPECT_FALSE(tier.find(sample_key(1)));
    EXPECT_TRUE(write(tier, 1));
    EXPECT_TRUE(read(tier, 1));
  }
  run(server.url(), {"SET", name(2), whole});  // of another page
  EXPECT_FALSE(read(tier, 2));
  EXPECT_EQ(tier.stats().damaged, 6u);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("has a wrong checksum; its page is computed again"), std::string::npos) << warnings_[0];
  run(server.url(), {"DEL", name(3)});
  run(server.url(), {"LPUSH", name(3), "not a string"});
  EXPECT_FALSE(read(tier, 3));
  EXPECT_FALSE(tier.answers());
}

TEST_F(RedisTierTest, LogsInAndSelectsTheDatabase) {
  RedisServer server({"--requirepass", "secret"});
  RedisUrl url = server.url();
  EXPECT_FALSE(RedisTier(options(url)).answers());
  url.password = "wrong~secret";
  EXPECT_FALSE(RedisTier(options(url)).answers());
  ASSERT_EQ(warnings_.size(), 2u);
  EXPECT_NE(warnings_[0].find("NOAUTH"), std::string::npos) << warnings_[0];
  EXPECT_NE(warnings_[1].find("WRONGPASS"), std::string::npos) << warnings_[1];
  for (const std::string& warning : warnings_) EXPECT_EQ(warning.find("secret"), std::string::npos) << warning;
  url.password = "secret";
  url.database = 3;
  RedisTier tier(options(url));
  EXPECT_TRUE(write(tier, 1));
  run(url, {"ACL", "SETUSER", "quire", "on", ">other~secret", "~*", "+@all"});
  url.user = "quire";
  url.password = "other~secret";
  RedisTier same(options(url));
  EXPECT_TRUE(read(same, 1));
  url.database = 4;
  RedisTier elsewhere(options(url));
  EXPECT_FALSE(read(elsewhere, 1));
  url.database = 1000;
  EXPECT_FALSE(RedisTier(options(url)).answers());
}

TEST_F(RedisTierTest, MissesWhileTheServerIsGone) {
  RedisServer server;
  RedisTier tier(options(server.url()));
  EXPECT_TRUE(write(tier, 1));
  server.kill();
  EXPECT_FALSE(read(tier, 1));
  EXPECT_FALSE(tier.answers());
  EXPECT_FALSE(tier.accepts());
  EXPECT_FALSE(tier.find(sample_key(1)));
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(has(tier, 1));
    EXPECT_FALSE(read(tier, 1));
    EXPECT_FALSE(write(tier, 2));
    tier.refresh();
  }
  EXPECT_EQ(warnings_.size(), 1u);
  server.start();
  tier.refresh();
  EXPECT_TRUE(tier.answers());
  EXPECT_FALSE(has(tier, 1)) << "the new server has nothing";
  EXPECT_TRUE(write(tier, 1));
  EXPECT_TRUE(read(tier, 1));
  ASSERT_EQ(warnings_.size(), 2u);
  EXPECT_NE(warnings_[1].find("answers again"), std::string::npos) << warnings_[1];
}

TEST_F(RedisTierTest, NoticesInRefreshThatAnIdleConnectionIsLost) {
  RedisServer server;
  RedisTier tier(options(server.url()));
  server.kill();
  server.start();
  tier.refresh();
  EXPECT_TRUE(write(tier, 1));
  EXPECT_TRUE(read(tier, 1));
}

TEST_F(RedisTierTest, WaitsForASlowServerOnce) {
  RedisServer server;
  RedisTier tier(options(server.url()));
  EXPECT_TRUE(write(tier, 1));
  server.pause();
  const double first = seconds_of([&] { EXPECT_FALSE(has(tier, 1)); });
  EXPECT_GE(first, 0.25);
  EXPECT_LT(first, 5);
  const double then = seconds_of([&] {
    for (int i = 0; i < 100; ++i) EXPECT_FALSE(read(tier, i) || has(tier, i) || write(tier, i));
  });
  EXPECT_LT(then, 0.25);
  server.resume();
  tier.refresh();
  EXPECT_TRUE(read(tier, 1));
}

TEST_F(RedisTierTest, StopsWritingToAFullServer) {
  RedisServer server({"--maxmemory", "3mb", "--maxmemory-policy", "noeviction"});
  RedisTier tier(options(server.url()));
  int written = 0;
  while (written < 200 && write(tier, written)) ++written;
  EXPECT_GT(written, 2);
  EXPECT_LT(written, 200);
  EXPECT_FALSE(tier.accepts());
  EXPECT_TRUE(tier.answers());
  EXPECT_TRUE(read(tier, 0));
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("a page is refused"), std::string::npos) << warnings_[0];
}

TEST_F(RedisTierTest, VerifiesTheCertificate) {
  const TemporaryFolder folder;
  const std::string key = folder / "key", certificate = folder / "certificate";
  const std::string make =
      "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -addext subjectAltName=IP:127.0.0.1 "
      "-keyout " +
      key + " -out " + certificate + " 2>/dev/null";
  if (std::system(make.c_str()) != 0) GTEST_SKIP() << "no openssl: apt-get install openssl";
  RedisServer server({"--tls-cert-file", certificate, "--tls-key-file", key, "--tls-auth-clients", "no"}, true);
  EXPECT_FALSE(RedisTier(options(server.url())).answers()) << "the authority is not known";
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("certificate"), std::string::npos) << warnings_[0];
  setenv("SSL_CERT_FILE", certificate.c_str(), 1);
  {
    RedisTier tier(options(server.url()));
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(write(tier, i));
    for (int i = 0; i < 10; ++i) tier.prefetch(sample_key(i));
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(read(tier, i));
    server.pause();
    EXPECT_FALSE(read(tier, 1));
    server.kill();
    server.start();
    tier.refresh();
    EXPECT_TRUE(write(tier, 1));
  }
  RedisUrl other_name = server.url();
  other_name.host = "localhost";  // the certificate is for the address alone
  EXPECT_FALSE(RedisTier(options(other_name)).answers());
  unsetenv("SSL_CERT_FILE");
}

// ---- servers that are none ----

TEST_F(RedisTierTest, SurvivesNonsense) {
  const std::string whole_page = "$" + std::to_string(page_file_bytes(kRedisPageBytes)) + "\r\n";
  for (const std::string& nonsense :
       {std::string("HTTP/1.1 400 Bad Request\r\n\r\n"), std::string("*1000000000\r\n"), std::string(300000, 'x'),
        std::string("$1000000000\r\n") + std::string(300000, 'x'), std::string(":1\r\n:1\r\n:1\r\n:1\r\n"),
        whole_page + std::string(page_file_bytes(kRedisPageBytes), '\0') + "\r\n", whole_page + "cut", std::string()}) {
    const ScriptedServer server([&](std::string_view received) {
      return received.find("PING") != received.npos ? std::string("+PONG\r\n") : nonsense;
    });
    RedisTier tier(options(server.url()));
    EXPECT_TRUE(tier.answers());
    EXPECT_FALSE(read(tier, 1)) << nonsense.substr(0, 40);
    tier.refresh();
    has(tier, 1);
    tier.refresh();
    write(tier, 1);
    tier.refresh();
    EXPECT_FALSE(read(tier, 2));
  }
}

TEST_F(RedisTierTest, WaitsNoLongerForTheRestOfAReply) {
  const ScriptedServer server([](std::string_view received) {
    if (received.find("PING") != received.npos) return std::string("+PONG\r\n");
    return std::string("$1000\r\n");  // and nothing more
  });
  RedisTier tier(options(server.url()));
  EXPECT_TRUE(tier.answers());
  EXPECT_LT(seconds_of([&] { EXPECT_FALSE(read(tier, 1)); }), 3);
  EXPECT_FALSE(tier.answers());
}

// ---- the store above it ----

class SharedStoreTest : public RedisTierTest {
 protected:
  PageStoreOptions store_options(const RedisUrl& server) {
    PageStoreOptions o;
    o.page_bytes = kRedisPageBytes;
    o.rescan = 20ms;
    o.open_shared = [this, server](Warn) {
      RedisTierOptions tier = options(server);
      tier.warn = {};
      return std::make_unique<RedisTier>(tier);
    };
    return o;
  }
  static bool ask(PageStore& store, std::span<const PageKey> keys) {
    const uint64_t question = store.ask(keys);
    if (question == 0) return false;
    for (int i = 0; i < 1000 && !store.answered(question); ++i) store.wait_completed(10ms);
    return store.answered(question);
  }
  // How many of the pages from 0 to `count` can be loaded; they must be right.
  static int load_all(PageStore& store, int count) {
    std::vector<Bytes> pages(count, Bytes(kRedisPageBytes));
    std::vector<PageStore::Completed> done;
    int loaded = 0, pending = 0;
    for (int i = 0; i < count; ++i) pending += store.load(sample_key(i), pages[i], i);
    while (pending > 0) {
      store.wait_completed();
      store.completed(done);
      pending -= static_cast<int>(done.size());
      for (const auto& one : done) {
        loaded += one.ok;
        if (one.ok) {
          EXPECT_EQ(pages[one.ticket], sample_page(static_cast<int>(one.ticket), kRedisPageBytes));
        }
      }
    }
    return loaded;
  }
};

TEST_F(SharedStoreTest, FindsAndLoadsWhatAnotherStorePut) {
  RedisServer server;
  PageStore one(store_options(server.url())), other(store_options(server.url()));
  std::vector<PageKey> keys;
  for (int i = 0; i < 100; ++i) keys.push_back(sample_key(i));
  for (int i = 0; i < 100; ++i) one.put(keys[i], fill_with(sample_page(i, kRedisPageBytes)));
  one.flush();
  EXPECT_EQ(other.find(keys[0]), PageStore::Tier::kNone);
  ASSERT_TRUE(ask(other, keys));
  for (const PageKey key : keys) EXPECT_EQ(other.find(key), PageStore::Tier::kDisk);
  EXPECT_EQ(load_all(other, 100), 100);
  EXPECT_EQ(other.stats().shared.hits, 100u);
}

TEST_F(SharedStoreTest, AnswersAtOnceWhenTheServerIsGone) {
  RedisServer server;
  PageStore store(store_options(server.url()));
  store.put(sample_key(0), fill_with(sample_page(0, kRedisPageBytes)));
  store.flush();
  server.kill();
  for (int i = 0; i < 500 && store.ask(std::vector{sample_key(0)}) != 0; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(store.ask(std::vector{sample_key(0)}), 0u);
  EXPECT_EQ(load_all(store, 10), 0);
  store.put(sample_key(1), fill_with(sample_page(1, kRedisPageBytes)));
  EXPECT_GE(store.stats().dropped, 1u);
  server.start();
  for (int i = 0; i < 500 && !ask(store, std::vector{sample_key(0)}); ++i) std::this_thread::sleep_for(10ms);
  store.put(sample_key(1), fill_with(sample_page(1, kRedisPageBytes)));
  store.flush();
  EXPECT_EQ(load_all(store, 2), 1);
}

TEST_F(SharedStoreTest, LeavesAHangingServerInTime) {
  RedisServer server;
  const double seconds = seconds_of([&] {
    PageStore store(store_options(server.url()));
    server.pause();
    for (int i = 0; i < 20; ++i) store.put(sample_key(i), fill_with(sample_page(i, kRedisPageBytes)));
  });
  EXPECT_LT(seconds, 4);
  server.resume();
}

}  // namespace
}  // namespace quire
