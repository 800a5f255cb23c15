"""Checks docs/kubernetes.yaml: that it is a manifest, and that its ranks can find each other. Needs PyYAML."""

import pathlib
import sys

try:
    import yaml
except ImportError:
    print("not run: the Kubernetes manifest (no PyYAML: pip install pyyaml)")
    sys.exit(0)

PATH = pathlib.Path(__file__).parent.parent / "docs/kubernetes.yaml"
wrong = []


def check(fits, what):
    if not fits:
        wrong.append(what)


def only(mapping, known, where):
    """Names that Kubernetes does not know are ignored there, so they are found here."""
    for name in set(mapping) - set(known.split()):
        wrong.append(f"{where} has an unknown {name}")


documents = {document["kind"]: document for document in yaml.safe_load_all(PATH.read_text())}
check(set(documents) == {"Service", "Job"}, "a Service and a Job are expected")
service, job = documents["Service"], documents["Job"]
check((service["apiVersion"], job["apiVersion"]) == ("v1", "batch/v1"), "another version of the API")
only(service["spec"], "clusterIP publishNotReadyAddresses selector", "the service")
check(service["spec"]["clusterIP"] == "None", "the service is not headless")
check(service["spec"]["publishNotReadyAddresses"] is True, "pods that are not ready have no name")

name, spec = job["metadata"]["name"], job["spec"]
only(spec, "completionMode completions parallelism backoffLimit template", "the job")
check(service["spec"]["selector"] == {"job-name": name}, "the service does not select the job's pods")
check(spec["completionMode"] == "Indexed", "pods without an index have no rank")
check(spec["completions"] == spec["parallelism"], "all ranks must run at once")

pod = spec["template"]["spec"]
only(pod, "subdomain restartPolicy containers volumes", "the pod")
check(pod["subdomain"] == service["metadata"]["name"], "the pods are not under the service's name")
check(pod["restartPolicy"] == "Never", "a rank that restarts alone does not find the others")
[container] = pod["containers"]
only(container, "name image command args env resources volumeMounts", "the container")
env = {entry["name"]: entry for entry in container["env"]}
index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
check(env["RANK"]["valueFrom"]["fieldRef"]["fieldPath"] == index, "RANK is not the pod's index")
check(env["WORLD_SIZE"]["value"] == str(spec["completions"]), "WORLD_SIZE is not the number of pods")
check(
    env["MASTER_ADDR"]["value"] == f"{name}-0.{pod['subdomain']}", "MASTER_ADDR is not the first pod's name"
)
check(all(isinstance(entry.get("value", ""), str) for entry in env.values()), "a value is not a string")
check(env["MASTER_PORT"]["value"].isdigit(), "MASTER_PORT is not a port")
check(container["resources"]["limits"]["nvidia.com/gpu"] == 1, "a pod has one GPU per rank")
mounted, volumes = ({entry["name"] for entry in of} for of in (container["volumeMounts"], pod["volumes"]))
check(mounted == volumes, "volumes and mounts differ")

for what in wrong:
    print(f"manifest: {what}", file=sys.stderr)
if wrong:
    sys.exit(1)
print(f"manifest: {spec['completions']} ranks, all settings fit")
