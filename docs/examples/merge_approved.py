"""Put every approved pull request into the merge queue and work the queue off. For cron; needs `swarm` on PATH."""

import json
import subprocess
import sys


def swarm(*arguments: str) -> tuple[int, object]:
    done = subprocess.run(["swarm", *arguments, "--json"], stdout=subprocess.PIPE, check=False)
    return done.returncode, json.loads(done.stdout)


def main() -> int:
    code, pulls = swarm("pr", "ls", "--look")
    if code != 0:
        print(json.dumps(pulls))
        return code
    ready = [p["instance_id"] for p in pulls if p["status"] == "approved" and p["ready"]]
    for instance in ready:
        swarm("pr", "queue", instance, "--squash")  # one that is queued already is refused, which is fine
    code, queue = swarm("pr", "queue", "--run")
    print(json.dumps(queue))
    return code


if __name__ == "__main__":
    sys.exit(main())
