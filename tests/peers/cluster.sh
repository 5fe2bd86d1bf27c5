#!/usr/bin/env bash
# A real Apache RocketMQ 5.5.0 on loopback, for the conformance suite, the fault runs and the benchmarks.
#
#   cluster.sh jars   LIB                           the jars of pom.xml into LIB, fetched by Maven (about 100 MB)
#   cluster.sh start  DIR LIB NS_PORT BROKER_PORT   name server + one broker; returns when both serve
#   cluster.sh join   DIR LIB NS_PORT BROKER_PORT NAME   one more broker at the name server of another directory
#   cluster.sh kill   DIR                           ends the broker alone, by kill -9
#   cluster.sh bounce DIR LIB [SECONDS]             stops the broker alone, waits, starts it again; the name server stays
#   cluster.sh forget DIR LIB                       kills and restarts the broker; deletes its commit log but the file it writes and the next one, which is empty
#   cluster.sh stop   DIR                           ends what was started in DIR, by process id and at once: its data is done with
#
# DIR is the home of one cluster: its settings, store, logs and process ids. LIB holds the jars and is shared.
# JAVA names another java; HEAP another broker heap (1g); SEGMENT another commit-log segment size (1 GiB, sparse);
# FLUSH=SYNC_FLUSH flushes before it answers; STORE names another store directory (DIR/store); OPTIONS are more options of
# java; LIB.jsa, if it is there, holds classes in the form that a JVM maps. SLACK lengthens sleeps by so many
# nanoseconds. CONF holds more lines of the broker's configuration, and POM names another pom.xml for `jars`. A broker port P also takes P-2 (fast port) and P+1 (replication).
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
verb=${1:?verb}; dir=${2:?directory}; mkdir -p "$dir"; dir=$(cd "$dir" && pwd)
java=${JAVA:-java}
export ROCKETMQ_HOME=$dir

run() { # run NAME CLASS ARGS...: in the background, in a session of its own, its process id in NAME.pid
  local name=$1; shift
  read -ra more <<<"${OPTIONS:-}"
  if [[ -s $lib.jsa ]]; then more+=(-XX:SharedArchiveFile="$lib.jsa"); fi
  : >"$dir/logs/$name.out" # at once: `await` would find what the process before this one wrote
  # Without TLS, which a test asks for by an option of its own: every start would make a key and a certificate.
  {
    # What sleeps for a millisecond again and again, as an idle broker does, sleeps longer: Linux alone can do that.
    if [[ ${SLACK:-} && -w /proc/self/timerslack_ns ]]; then echo "$SLACK" >/proc/$BASHPID/timerslack_ns; fi
    exec setsid "$java" -Dtls.server.mode=disabled "${opts[@]}" ${more[@]+"${more[@]}"} -Duser.home="$dir" -cp "$lib/*" "$@"
  } >"$dir/logs/$name.out" 2>&1 </dev/null &
  echo $! >"$dir/$name.pid"
}

await() { # await NAME TEXT SECONDS
  local pid; read -r pid <"$dir/$1.pid"
  for _ in $(seq $(($3 * 10))); do # without processes but `sleep`: what starts here needs every core
    [[ $(<"$dir/logs/$1.out") == *"$2"* ]] && return 0
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  echo "$1 did not start:" >&2; tail -20 "$dir/logs/$1.out" >&2; return 1
}

broker() {
  opts=(-Xms"${HEAP:-1g}" -Xmx"${HEAP:-1g}" -XX:MaxDirectMemorySize=1g
    --add-exports=java.base/jdk.internal.ref=ALL-UNNAMED --add-exports=java.base/sun.nio.ch=ALL-UNNAMED)
  run broker org.apache.rocketmq.broker.BrokerStartup -c "$dir/conf/broker.conf"
  await broker "boot success" 240
}

settings() { # settings NAME: the broker's configuration. With the usual flush intervals an idle broker takes a third of a core;
  # one thread spins through the first transactionMetricFlushInterval of each start, and then waits. Another one spins for as long
  # as the end of a transaction is older than transactionOpBatchInterval: so each end is written at once, by its size.
  # A message that has waited for 0.2 s would be refused: on a busy machine that is any.
  local store=${STORE:-$dir/store}
  cat >"$dir/conf/broker.conf" <<CONF
brokerClusterName=DefaultCluster
brokerName=$1
brokerId=0
brokerIP1=127.0.0.1
bindAddress=127.0.0.1
listenPort=$port
haListenPort=$((port + 1))
namesrvAddr=127.0.0.1:$ns
transactionCheckInterval=3000
transactionTimeOut=1000
transactionOpBatchInterval=3600000
transactionOpMsgMaxSize=1
transactionMetricFlushInterval=500
timerFlushIntervalMs=600000
timerGetMessageThreadNum=1
timerPutMessageThreadNum=1
recallMessageEnable=true
waitTimeMillsInSendQueue=20000
osPageCacheBusyTimeOutMills=20000
storePathRootDir=$store
storePathCommitLog=$store/commitlog
mappedFileSizeCommitLog=${SEGMENT:-1073741824}
autoCreateTopicEnable=true
enablePropertyFilter=true
flushDiskType=${FLUSH:-ASYNC_FLUSH}
diskMaxUsedSpaceRatio=95
${CONF:-}
CONF
}

end() { # end NAME: by kill -9; returns when its files are closed, for what starts next wants their locks and ports
  [ -f "$dir/$1.pid" ] || return 0
  local pid; pid=$(cat "$dir/$1.pid"); rm "$dir/$1.pid"
  kill -9 "$pid" 2>/dev/null || return 0
  for _ in $(seq 300); do # a zombie without other threads has closed them; it may stay for as long as its parent likes
    case $(ps -o stat= -p "$pid") in Z*l*) ;; "" | Z*) return 0 ;; esac
    sleep 0.05
  done
  echo "$1 is still there 15 s after kill -9" >&2; return 1
}

halt() { # halt NAME: by its process id, politely, then not: a broker of 5.5.0 would need over 20 s
  [ -f "$dir/$1.pid" ] || return 0
  local pid; pid=$(cat "$dir/$1.pid")
  kill "$pid" 2>/dev/null || true
  for _ in $(seq 30); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
  end "$1"
}

case $verb in
jars)
  mvn -q -B -f "${POM:-$here/pom.xml}" dependency:copy-dependencies -DoutputDirectory="$dir" >&2 ;;
start)
  lib=$(cd "$3" && pwd); ns=$4; port=$5
  mkdir -p "$dir/conf" "$dir/logs"
  printf 'listenPort=%s\nbindAddress=127.0.0.1\n' "$ns" >"$dir/conf/namesrv.conf"
  opts=(-Xms128m -Xmx128m)
  run namesrv org.apache.rocketmq.namesrv.NamesrvStartup -c "$dir/conf/namesrv.conf"
  await namesrv "boot success" 240
  settings broker-a
  broker
  echo "name server 127.0.0.1:$ns, broker 127.0.0.1:$port" ;;
join)
  lib=$(cd "$3" && pwd); ns=$4; port=$5
  mkdir -p "$dir/conf" "$dir/logs"
  settings "$6"
  broker
  echo "broker $6 127.0.0.1:$port" ;;
kill)
  end broker ;;
bounce)
  lib=$(cd "$3" && pwd); halt broker; sleep "${4:-1}"; broker ;;
forget)
  lib=$(cd "$3" && pwd); end broker # what it wrote is with the kernel; a polite stop takes over 20 s
  find "${STORE:-$dir/store}/commitlog" -type f | sort | head -n -2 | xargs rm
  broker ;;
stop)
  end broker; end namesrv ;;
*) echo "unknown verb $verb" >&2; exit 2 ;;
esac
