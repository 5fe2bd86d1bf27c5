"""docs/how-to/keda.md: the manifest has fields of KEDA's alone, with values that it takes."""

from __future__ import annotations

import yaml

from tests.docs.pages import ROOT

MANIFEST = yaml.safe_load((ROOT / "tests/environments/recipes/keda/scaledobject.yaml").read_text())
SPEC = MANIFEST["spec"]
OF_SPEC = {
    *("scaleTargetRef", "pollingInterval", "cooldownPeriod", "initialCooldownPeriod", "idleReplicaCount"),
    *("minReplicaCount", "maxReplicaCount", "fallback", "advanced", "triggers"),
}


def test_the_manifest_is_a_scaled_object() -> None:
    assert (MANIFEST["apiVersion"], MANIFEST["kind"]) == ("keda.sh/v1alpha1", "ScaledObject")
    assert set(SPEC) <= OF_SPEC
    assert {"name"} <= set(SPEC["scaleTargetRef"]) <= {"name", "kind", "apiVersion", "envSourceContainerName"}
    assert set(SPEC["fallback"]) <= {"failureThreshold", "replicas", "behavior"}
    assert 1 <= SPEC["minReplicaCount"] <= SPEC["fallback"]["replicas"] <= SPEC["maxReplicaCount"]
    behavior = SPEC["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    for rules in (behavior["scaleUp"], behavior["scaleDown"]):
        assert set(rules) <= {"stabilizationWindowSeconds", "policies", "selectPolicy", "tolerance"}
        assert all(set(one) == {"type", "value", "periodSeconds"} for one in rules["policies"])


def test_its_trigger_is_one_of_prometheus() -> None:
    (trigger,) = SPEC["triggers"]
    assert set(trigger) <= {"type", "metadata", "metricType", "name", "useCachedMetrics", "authenticationRef"}
    assert (trigger["type"], trigger["metricType"]) == ("prometheus", "AverageValue")
    assert {"serverAddress", "query", "threshold"} <= set(trigger["metadata"])
    assert all(isinstance(value, str) for value in trigger["metadata"].values())  # KEDA takes texts alone
